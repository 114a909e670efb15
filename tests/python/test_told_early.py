# SPDX-License-Identifier: Apache-2.0
"""What would fail at the end of a command is told at its beginning, and nothing is begun."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import small_lake
from headrace import Error, registry

FOREIGN = ["mlflow:", "models:/x", "s3://bucket/registry", "databricks:", "file:///tmp/r"]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake.good_lake(tmp_path)


def with_registry(lake: Path) -> Iterator[list[str | Path]]:
    """Commands that take --registry, those that would make one among them."""
    train = ["forecast", "train", lake, *small_lake.FAST, "--model", "m"]
    yield train
    yield [*train, "--global"]
    yield [*train, "--warm-start", "g"]
    yield ["forecast", "predict", lake, "--model", "m", "--out", "f.csv"]
    yield ["models", "list"]
    yield ["models", "import", lake]
    yield ["models", "backup", "b"]


@pytest.mark.parametrize("place", FOREIGN)
def test_a_registry_is_never_a_folder_called_like_an_address(
    lake: Path, tmp_path: Path, run_headrace, place: str
) -> None:
    before = sorted(tmp_path.iterdir())
    for words in with_registry(lake):
        for more, env in (["--registry", place], {}), ([], {"HEADRACE_REGISTRY": place}):
            done = run_headrace(*words, *more, env=env)
            assert done.returncode in (1, 2), words
            assert f'"{place}" is no folder, and a registry is one' in done.stderr, done.stderr
            assert sorted(tmp_path.iterdir()) == before, words
    with pytest.raises(Error, match="is no folder, and a registry is one"):
        registry.open(place)


@pytest.mark.parametrize("place", FOREIGN)
def test_a_pipeline_that_names_an_address_as_its_registry_is_not_valid(
    lake: Path, tmp_path: Path, run_headrace, place: str
) -> None:
    path = small_lake.pipeline(tmp_path / "p.json", lake, registry=place)
    before = sorted(tmp_path.iterdir())
    for command in "validate", "run":
        done = run_headrace("flow", command, path)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "is no folder, and a registry is one" in done.stdout + done.stderr
        assert sorted(tmp_path.iterdir()) == before


def spoilt_actuals(folder: Path) -> Iterator[tuple[list[str | Path], str]]:
    yield ["--actuals", folder / "absent.csv"], "absent.csv"
    (folder / "torn.parquet").write_bytes(b"PAR1 and nothing else")
    yield ["--actuals", folder / "torn.parquet"], "torn.parquet"
    (folder / "other.csv").write_text("a,b\n1,2\n")
    yield ["--actuals", folder / "other.csv"], "item_id"
    (folder / "empty").mkdir()
    yield ["--actuals", folder / "empty"], "empty"


def test_actuals_that_cannot_be_read_are_told_before_a_run_is_made(
    lake: Path, tmp_path: Path, run_headrace
) -> None:
    train = ["forecast", "train", lake, *small_lake.FAST, "--model", "m"]
    for words, told in spoilt_actuals(tmp_path):
        for more in [], ["--json"]:
            done = run_headrace(*train, *words, *more)
            assert done.returncode == 2, (words, done.stdout + done.stderr)
            where = json.loads(done.stdout)["error"]["message"] if more else done.stderr
            assert told in where and "actuals" in where, where
            assert not (tmp_path / "runs").exists()
            assert not (tmp_path / "registry").exists()


def test_a_global_training_does_not_pass_over_actuals(lake: Path, run_headrace) -> None:
    train = ["forecast", "train", lake, *small_lake.FAST, "--global"]
    for words in ["--actuals", lake], ["--actuals-start", "2026-01-01"]:
        done = run_headrace(*train, *words)
        assert done.returncode == 2
        assert f"{words[0]} is for forecasts, and --global makes none" in done.stderr


def test_a_registry_that_cannot_be_written_is_told_before_a_run_is_made(
    lake: Path, tmp_path: Path, run_headrace
) -> None:
    (tmp_path / "file").write_text("")
    for scope in [], ["--global"]:
        for place, told in (
            (tmp_path / "file", tmp_path / "file"),
            (tmp_path / "file" / "registry", tmp_path / "file"),
            ("/proc/registry", "/proc/registry"),
        ):
            done = run_headrace(
                *["forecast", "train", lake, *small_lake.FAST, "--registry", place], *scope
            )
            assert done.returncode in (1, 2), done.stdout + done.stderr
            assert f"{told}" in done.stderr and "registry: " in done.stderr, done.stderr
            assert not (tmp_path / "runs").exists()


def test_a_file_that_cannot_be_written_is_told_before_the_work(
    lake: Path, tmp_path: Path, run_headrace, headrace_json
) -> None:
    headrace_json("forecast", "train", lake, *small_lake.FAST, "--global", "--model", "g")
    file = tmp_path / "file"
    file.write_text("")
    backtest = ["forecast", "backtest", lake, *small_lake.FAST, "--global", "--windows", 1]
    predict = ["forecast", "predict", lake, "--model", "g"]
    long = "x" * 300
    for path in tmp_path / "no" / "f.csv", file / "f.csv", "/proc/f.csv", f"{long}.csv", "f.txt":
        for words, option in (predict, "--out"), (backtest, "--per-item"):
            done = run_headrace(*words, option, path)
            assert done.returncode == 2, (path, done.stderr)
            assert str(path) in done.stderr, done.stderr
