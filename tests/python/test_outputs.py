# SPDX-License-Identifier: Apache-2.0
"""No command writes over what it reads, under whatever name, nor into the table's own folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headrace
import small_lake
from headrace import registry

Names = dict[str, Path]


@pytest.fixture
def files(tmp_path: Path, headrace_json) -> Names:
    """A table as one CSV, a forecast of it and what came, in folders of their own."""
    lake = small_lake.good_lake(tmp_path)
    headrace_json("forecast", "train", lake, "--global", "--model", "g", *small_lake.FAST)
    out: Names = {"lake": lake}
    for name in ("table", "actuals"):
        (tmp_path / name).mkdir()
        out[name] = tmp_path / name / "data.parquet"
        shutil.copy(next(lake.glob("*.parquet")), out[name])
    out["forecasts"] = tmp_path / "forecasts.parquet"
    headrace_json("forecast", "predict", lake, "--model", "g", "--out", out["forecasts"])
    return out


def same(path: Path) -> Path:
    return path


def dotted(path: Path) -> Path:
    return path.parent / "." / ".." / path.parent.name / path.name


def hard(path: Path) -> Path:
    link = path.parents[1] / "hard.parquet"
    os.link(path, link)
    return link


def soft(path: Path) -> Path:
    link = path.parents[1] / "soft.parquet"
    link.symlink_to(path)
    return link


def commands(files: Names, read: str, out: Path) -> list[list[object]]:
    table, actuals = files["table"], files["actuals"]
    beside = ["--history", table, "--actuals", actuals]
    evaluate = ["forecast", "evaluate", files["forecasts"], *beside, "--per-item", out]
    if read != "table":
        return [evaluate]
    backtest = ["forecast", "backtest", table, *small_lake.FAST, "--per-item", out]
    predict = ["forecast", "predict", table, "--model", "g", "--out", out]
    return [evaluate, backtest, predict]


@pytest.mark.parametrize("name", [same, dotted, hard, soft])
@pytest.mark.parametrize("read", ["table", "actuals", "forecasts"])
def test_no_command_writes_over_a_file_it_reads(
    files: Names, run_headrace, read: str, name: Callable[[Path], Path]
) -> None:
    before = files[read].read_bytes()
    out = name(files[read])
    for words in commands(files, read, out):
        done = run_headrace(*words)
        assert done.returncode == 2, (words, done.stderr)
        assert str(out) in done.stderr and "name another file" in done.stderr
        assert files[read].read_bytes() == before


def test_a_plot_does_not_write_over_what_it_reads(files: Names, run_headrace) -> None:
    for read in ("table", "actuals", "forecasts"):
        link = files[read].with_suffix(".svg")
        link.symlink_to(files[read])
        before = files[read].read_bytes()
        plot = ["forecast", "plot", files["forecasts"], "--item", "s1", "--out", link]
        done = run_headrace(*plot, "--history", files["table"], "--actuals", files["actuals"])
        assert done.returncode == 2, done.stderr
        assert "name another file" in done.stderr
        assert files[read].read_bytes() == before


@pytest.mark.parametrize("shape", ["folder", "below", "glob", "link"])
def test_no_command_writes_into_the_folder_that_is_its_table(
    files: Names, tmp_path: Path, run_headrace, shape: str
) -> None:
    folder = files["table"].parent
    (folder / "more").mkdir()
    (tmp_path / "linked").symlink_to(folder)
    place = {"below": folder / "more", "link": tmp_path / "linked"}.get(shape, folder)
    table = f"{folder}/*.parquet" if shape == "glob" else folder
    out = place / "new.parquet"
    beside = ["--history", table, "--actuals", files["actuals"]]
    for words in (
        ["forecast", "predict", table, "--model", "g", "--out", out],
        ["forecast", "evaluate", files["forecasts"], *beside, "--per-item", out],
        ["forecast", "backtest", table, *small_lake.FAST, "--per-item", out],
    ):
        done = run_headrace(*words)
        assert done.returncode == 2, done.stderr
        assert "a part of the table" in done.stderr and str(out) in done.stderr
        assert not out.exists()


def test_what_is_no_data_or_not_taken_by_a_glob_may_lie_beside_it(
    files: Names, run_headrace
) -> None:
    folder = files["table"].parent
    predict = ["forecast", "predict", f"{folder}/d*.parquet", "--model", "g"]
    assert run_headrace(*predict, "--out", folder / "new.parquet").returncode == 0
    (folder / "new.parquet").unlink()
    plot = ["forecast", "plot", files["forecasts"], "--item", "s1", "--history", folder]
    assert run_headrace(*plot, "--out", folder / "p.svg").returncode == 0


def test_a_run_does_not_lie_in_the_folder_of_its_table(files: Names, run_headrace) -> None:
    folder = files["table"].parent
    train = ["forecast", "train", folder, *small_lake.FAST, "--model", "each"]

    done = run_headrace(*train, "--dir", folder / "run")

    assert done.returncode == 2, done.stderr
    assert "part of the table" in done.stderr and "--dir" in done.stderr
    assert not (folder / "run").exists()


def test_an_export_replaces_no_file_unless_it_is_told_to(
    files: Names, tmp_path: Path, run_headrace
) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("mine")
    done = run_headrace("models", "export", "g", target)
    assert done.returncode != 0 and "--force" in done.stderr
    assert target.read_text() == "mine"
    assert run_headrace("models", "export", "g", target, "--force").returncode == 0
    assert target.read_bytes()[:13] == b"manifest.json"

    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / "README.md").write_text("mine")
    export = ["models", "export", "g", hub, "--layout", "hf"]
    done = run_headrace(*export)
    assert done.returncode != 0 and "--force" in done.stderr
    assert (hub / "README.md").read_text() == "mine"
    assert run_headrace(*export, "--force").returncode == 0
    assert (hub / "README.md").read_text() != "mine"


def test_an_export_is_never_written_into_the_registry(
    files: Names, tmp_path: Path, run_headrace
) -> None:
    database = next(tmp_path.glob("registry/*.sqlite*"), None) or next(
        path for path in (tmp_path / "registry").iterdir() if path.is_file()
    )
    before = database.read_bytes()
    link = tmp_path / "link.tar"
    link.symlink_to(database)
    for target in (database, link, tmp_path / "registry" / "new.tar"):
        done = run_headrace("models", "export", "g", target, "--force")
        assert done.returncode == 2, done.stderr
        assert "registry" in done.stderr
    assert database.read_bytes() == before


def test_python_exports_as_the_command_does(tmp_path: Path) -> None:
    r = registry.open(tmp_path / "r")
    r.add("m", {"w": np.ones(2, "f4")})
    target = tmp_path / "m.tar"
    assert r.export_file(target) == 1
    with pytest.raises(headrace.Error, match="force"):
        r.export_file(target)
    assert r.export_file(target, force=True) == 1
