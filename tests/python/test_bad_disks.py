# SPDX-License-Identifier: Apache-2.0
"""Full and unwritable disks under models, journals and forecasts.

Small file systems in memory are mounted for it, which needs root. Whatever fills up: no crash, a
message that says which file and what to do, and once there is space `flow resume` completes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Run

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.parquet as pq  # noqa: E402

from small_lake import FAST, ITEMS, good_lake, pipeline  # noqa: E402

MIB = 1 << 20
LOCAL = [*FAST, "--global-members", "0"]


def mount(*words: str | Path) -> None:
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")


class Disk:
    """A file system of its own size at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: int) -> None:
        mount("-o", f"remount,size={size}", self.path)

    def read_only(self, on: bool = True) -> None:
        mount("-o", f"remount,{'ro' if on else 'rw'}", self.path)

    def fill(self, left: int = 0) -> Path:
        """Take all space but `left` bytes; answers the file that holds it."""
        ballast = self.path / "ballast"
        free = os.statvfs(self.path)
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize - left))
        return ballast


@pytest.fixture
def make_disk(tmp_path: Path) -> Iterator[Callable[[int], Disk]]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mounted: list[Path] = []

    def make(size: int) -> Disk:
        path = tmp_path / "disk"
        path.mkdir()
        mount("-t", "tmpfs", "-o", f"size={size}", "headrace-test", path)
        mounted.append(path)
        return Disk(path)

    yield make
    for path in mounted:
        subprocess.run(["umount", "--lazy", path], check=True)


def versions(run_headrace: Run, **options: Any) -> Counter[str]:
    """Registered versions by name."""
    done = run_headrace("models", "list", "--json", **options)
    assert done.returncode == 0, done.stderr
    return Counter(version["name"] for version in json.loads(done.stdout)["versions"])


def items(run: Path) -> set[str]:
    return set(pq.read_table(run / "forecasts.parquet")["item_id"].to_pylist())


ONCE = Counter({f"m/{item}": 1 for item in ITEMS})


@pytest.mark.parametrize("left", [0, 120_000])
def test_a_full_disk_under_the_models_costs_no_model(
    left: int, run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    lake = good_lake(tmp_path)
    document = pipeline(tmp_path / "p.json", lake, {"hidden": 40}, choose=False)
    disk = make_disk(4 * MIB)
    own = {"env": {"HEADRACE_REGISTRY": str(disk.path / "registry")}}
    first = run_headrace("forecast", "train", lake, "--global", "--model", "g", *FAST, **own)
    assert first.returncode == 0, first.stderr
    ballast = disk.fill(left)

    full = run_headrace("flow", "run", document, "--dir", "run", **own)

    assert full.returncode == 1, full.stderr
    assert f"{disk.path}/registry" in full.stderr
    assert "full" in full.stderr or "No space left on device" in full.stderr
    assert "free space on its disk" in full.stderr or "free some space there" in full.stderr
    alone = run_headrace("forecast", "train", lake, "--global", "--model", "h", *FAST, **own)
    assert alone.returncode == 1 or left > 0
    before = versions(run_headrace, **own)  # what is there can be read

    ballast.unlink()
    again = run_headrace("flow", "resume", "run", "--retry-failed", **own)

    assert again.returncode == 0, again.stderr
    after = versions(run_headrace, **own)
    assert {name: after[name] for name in ONCE} == ONCE
    assert all(after[name] == count for name, count in before.items())
    assert items(tmp_path / "run") == set(ITEMS)
    verified = run_headrace("models", "verify", **own)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 4, 6, 9, 14, 22])
def test_a_disk_that_fills_up_anywhere_in_a_run_leaves_what_can_go_on(
    pages: int, run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    """Lock, journal, registries, forecasts of workers, logs, the tables at the end, by page."""
    document = pipeline(tmp_path / "p.json", good_lake(tmp_path))
    disk = make_disk(MIB)
    run = disk.path / "run"
    ballast = disk.fill(pages * os.sysconf("SC_PAGE_SIZE"))

    full = run_headrace("flow", "run", document, "--dir", run)

    assert "No space left on device; free some space there and try again" in full.stderr
    if pages == 22:  # all but the report, which can be written at any time
        assert full.returncode == 0, full.stderr
        assert "headrace: no report: " in full.stderr
    else:
        assert full.returncode == 1, full.stderr
    ballast.unlink()
    again = run_headrace("flow", "resume", run)
    if (
        "there is no run" in again.stderr
        or "holds no run" in again.stderr
        or "the run never began" in again.stderr
    ):
        again = run_headrace("flow", "run", document, "--dir", run)
    elif again.returncode == 1:
        again = run_headrace("flow", "resume", run, "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert versions(run_headrace) == ONCE
    assert items(run) == set(ITEMS)


def test_a_journal_without_space_stops_the_run_and_resume_does_the_rest(
    run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    count = 3000
    each = {
        "name": "each",
        "type": "ForEach",
        "typeProperties": {
            "items": f"@range(0, {count})",
            "activities": [
                {"name": "do", "type": "NoOp", "typeProperties": {"value": "@concat('x', item())"}}
            ],
        },
    }
    document = tmp_path / "p.json"
    document.write_text(json.dumps({"name": "p", "properties": {"activities": [each]}}))
    disk = make_disk(160 << 10)
    run = disk.path / "run"

    def ended() -> dict[str, str]:
        done = run_headrace("flow", "status", run, "--items", "--json")
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)["activities"]
        return {
            item["key"]: item["started"]
            for item in found["item_list"]
            if item["status"] == "Succeeded"
        }

    full = run_headrace("flow", "run", document, "--dir", run)

    assert full.returncode == 1, full.stderr
    assert f"{run}/journal: No space left on device; free some space" in full.stderr
    assert f"continue then with: headrace flow resume {run}" in full.stderr
    before = ended()
    assert 0 < len(before) < count

    disk.resize(8 * MIB)
    again = run_headrace("flow", "resume", run)

    assert again.returncode == 0, again.stderr
    after = ended()
    assert len(after) == count
    assert {key: after[key] for key in before} == before  # none of them ran again


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_a_full_disk_under_forecasts_leaves_the_file_that_was_there(
    name: str, run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    lake = good_lake(tmp_path)
    trained = run_headrace("forecast", "train", lake, "--model", "m", *LOCAL)
    assert trained.returncode == 0, trained.stderr
    disk = make_disk(MIB)
    out = disk.path / name
    words = ("forecast", "predict", lake, "--model", "m", "--out", out)
    assert run_headrace(*words).returncode == 0
    before = out.read_bytes()
    ballast = disk.fill()

    full = run_headrace(*words, "--seed", "2")

    assert full.returncode == 1, full.stderr
    assert f"{out}" in full.stderr and "No space left on device" in full.stderr
    assert "free some space there and try again" in full.stderr
    assert out.read_bytes() == before
    assert {path.name for path in disk.path.iterdir()} == {name, "ballast"}
    ballast.unlink()
    assert run_headrace(*words, "--seed", "2").returncode == 0


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_scores_that_cannot_be_written_are_printed_all_the_same(
    as_json: bool, run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    lake = good_lake(tmp_path)
    disk = make_disk(MIB)
    disk.fill()
    words = ("forecast", "backtest", lake, *FAST, "--global", *(["--json"] if as_json else []))

    full = run_headrace(*words, "--per-item", disk.path / "scores.csv")

    assert full.returncode == 1, full.stdout + full.stderr
    assert f"{disk.path}/scores.csv" in full.stderr
    assert "No space left on device" in full.stderr
    assert full.stdout == run_headrace(*words).stdout
    assert json.loads(full.stdout)["items"] == 3 if as_json else "3 items" in full.stdout


# ---- what may not be written ----


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
def test_a_read_only_disk_is_told_before_the_work(
    name: str, run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    disk = make_disk(MIB)
    disk.read_only()
    none = tmp_path / "no-such-lake"
    for words in (
        ("backtest", none, "--horizon", "6", "--per-item", disk.path / name),
        ("predict", none, "--model", "m", "--out", disk.path / name),
    ):
        done = run_headrace("forecast", *words)
        assert done.returncode == 2, done.stderr
        assert f"{disk.path / name}" in done.stderr
        assert "Read-only file system" in done.stderr


def test_a_file_in_place_of_the_registry_is_told_and_can_be_put_away(
    run_headrace: Run, tmp_path: Path
) -> None:
    lake = good_lake(tmp_path)
    document = pipeline(tmp_path / "p.json", lake)
    registry = tmp_path / "registry"
    registry.write_text("not a folder")

    for words in (
        ("flow", "run", document, "--dir", "run"),
        ("forecast", "train", lake, "--global", "--model", "g", *FAST),
        ("forecast", "train", lake, "--model", "g", *LOCAL),
    ):
        done = run_headrace(*words, timeout=25)
        assert done.returncode in {1, 2}, done.stderr
        assert f"{registry} is a file, not a folder" in done.stderr, words
        assert "name another place (HEADRACE_REGISTRY, --registry)" in done.stderr
    assert registry.read_text() == "not a folder"

    registry.unlink()
    again = run_headrace("flow", "resume", "run", "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert versions(run_headrace) == ONCE


@pytest.mark.parametrize("there", [False, True], ids=["new", "existing"])
def test_a_registry_that_cannot_be_written_is_told_and_resume_completes(
    there: bool, run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    lake = good_lake(tmp_path)
    document = pipeline(tmp_path / "p.json", lake)
    disk = make_disk(4 * MIB)
    own = {"env": {"HEADRACE_REGISTRY": str(disk.path / "registry")}}
    train = ("forecast", "train", lake, "--global", "--model", "g", *FAST)
    if there:
        assert run_headrace(*train, **own).returncode == 0
    disk.read_only()

    # Asked before a training that would take longer than we wait.
    long = (*train[: -len(FAST)], "--horizon", "12", "--epochs", "9000", "--hidden", "100")
    for words in (("flow", "run", document, "--dir", "run"), long):
        done = run_headrace(*words, timeout=25, **own)
        assert done.returncode == 1, done.stderr
        assert f"{disk.path}/registry" in done.stderr
        assert "Read-only file system; mount it for writing, or name another place" in done.stderr

    disk.read_only(False)
    again = run_headrace("flow", "resume", "run", "--retry-failed", **own)
    assert again.returncode == 0, again.stderr
    assert versions(run_headrace, **own) == ONCE + Counter({"g": 1} if there else {})


def test_a_folder_for_runs_that_cannot_be_written_is_told(
    run_headrace: Run, make_disk: Callable[[int], Disk], tmp_path: Path
) -> None:
    lake = good_lake(tmp_path)
    document = pipeline(tmp_path / "p.json", lake)
    disk = make_disk(MIB)
    disk.read_only()
    for words in (
        ("flow", "run", document, "--dir", disk.path / "run"),
        ("forecast", "train", lake, *LOCAL, "--dir", disk.path / "run"),
    ):
        done = run_headrace(*words)
        assert done.returncode == 1
        assert f"{disk.path}/run: Read-only file system; mount it for writing" in done.stderr
