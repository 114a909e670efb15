# SPDX-License-Identifier: Apache-2.0
"""`headrace run -np N headrace forecast train --global`: one model, several processes."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import STARTED, Run
from headrace import registry

COMMON = ["--horizon", "6", "--frequency", "h", "--global", "--model", "m", "--context", "8"]
COMMON += ["--hidden", "12", "--lags", "1,2,24", "--batch", "10"]
SHORT = [*COMMON, "--epochs", "3", "--batches-per-epoch", "10"]
LONG = [*COMMON, "--epochs", "100000"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "waves.csv"
    with path.open("w") as file:
        file.write("item_id,timestamp,target\n")
        for item in range(5):
            for i in range(140 + item):
                value = (item + 1) * (10 + 5 * math.sin(i / 24 * 2 * math.pi) + (i * 7919 % 13) / 9)
                stamp = f"2026-01-{i // 24 + 1:02}T{i % 24:02}:00:00"
                file.write(f"item{item},{stamp},{value:.4f}\n")
    return path


def trained(folder: Path) -> tuple[list[Any], dict[str, Any]]:
    model = registry.open(folder).load("m")
    return [model.weights[name] for name in sorted(model.weights)], model.header["training"]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_train_the_model_of_one_process_and_only_the_first_speaks(
    ranks: int, table: Path, headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    alone = run_headrace("forecast", "train", table, *SHORT, "--registry", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr

    command = ["forecast", "train", table, *SHORT, "--registry", tmp_path / "shared"]
    shared = run_headrace("run", "-np", str(ranks), headrace_binary, *command)

    assert shared.returncode == 0, shared.stderr
    assert re.findall(r"^\[(\d+)\]<stdout>:registered m:1", shared.stdout, re.M) == ["0"]
    assert re.findall(r"^\[(\d+)\]<stderr>:epochs: 3/3", shared.stderr, re.M) == ["0"]
    assert not re.search(r"^\[[12]\]", shared.stdout + shared.stderr, re.M)
    ours, summary = trained(tmp_path / "shared")
    theirs, expected = trained(tmp_path / "alone")
    assert summary.get("ranks", 1) == ranks
    assert summary["best_step"] == expected["best_step"] == 30
    assert summary["loss"] == pytest.approx(expected["loss"], rel=1e-8)
    for mine, other in zip(ours, theirs, strict=True):
        assert abs(mine - other).max() < (1e-6 if ranks > 1 else 1e-12)


def test_the_same_number_of_ranks_gives_the_same_bits(
    table: Path, headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        command = ["forecast", "train", table, *SHORT, "--registry", tmp_path / name]
        assert run_headrace("run", "-np", "2", headrace_binary, *command).returncode == 0

    for mine, other in zip(trained(tmp_path / "one")[0], trained(tmp_path / "two")[0], strict=True):
        assert (mine == other).all()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            'if [ "$RANK" = 1 ]; then shift; set -- not-there.csv "$@"; fi',
            r"rank 1 on \S+: not-there\.csv: there is no such file",
        ),
        (
            'if [ "$RANK" = 1 ]; then set -- "$@" --seed 5; fi',
            r'the option seed is "1" on rank 0 on \S+ and "5" on rank 1',
        ),
        (
            'if [ "$RANK" = 1 ]; then export HEADRACE_FORECAST_ISA=scalar; fi',
            r'the instruction set .* is ".*" on rank 0 on \S+ and "scalar" on rank 1',
        ),
    ],
    ids=["table", "option", "instruction set"],
)
def test_what_is_other_on_one_rank_ends_all_and_rank_0_tells_it_once(
    script: str, told: str, table: Path, headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    script += '; exec "$0" forecast train "$@"'

    done = run_headrace("run", "-np", "2", "bash", "-c", script, headrace_binary, table, *SHORT)

    assert done.returncode == 1
    assert len(re.findall(r"^\[0\]<stderr>:headrace: .*" + told, done.stderr, re.M)) == 1
    assert not re.search(r"^\[1\]<stderr>", done.stderr, re.M)
    assert not list((tmp_path / "registry").rglob("*.safetensors"))


def test_a_model_per_series_is_not_for_ranks(
    table: Path, headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    done = run_headrace(
        "run", "-np", "2", headrace_binary, "forecast", "train", table, "--horizon", "6"
    )

    assert done.returncode == 1
    assert re.search(
        r"^\[0\]<stderr>:headrace: 2 ranks were started, .* --global", done.stderr, re.M
    )
    assert not re.search(r"^\[1\]", done.stderr, re.M)
    assert not (tmp_path / "registry").exists()


def test_more_ranks_than_windows_are_told_and_train_all_the_same(
    table: Path, headrace_binary: Path, run_headrace: Run
) -> None:
    few = [*SHORT]
    few[few.index("--batch") + 1] = "2"
    done = run_headrace("run", "-np", "3", headrace_binary, "forecast", "train", table, *few)

    assert done.returncode == 0, done.stderr
    assert "a batch of 2 windows is divided among 3 ranks, which leaves 1 without" in done.stderr


def trains(pid_file: Path) -> bool:
    """The rank has its table, and has the others': it takes care of Ctrl-C itself from then on."""
    try:
        status = Path(f"/proc/{int(pid_file.read_text())}/status").read_text()
    except (OSError, ValueError):
        return False
    caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.M)[0], 16)
    return status.startswith("Name:\theadrace\n") and bool(caught & 1 << (signal.SIGINT - 1))


Started = Callable[[], tuple[subprocess.Popen[str], list[int]]]


@pytest.fixture
def long_training(table: Path, headrace_binary: Path, tmp_path: Path) -> Started:
    """Start one that takes for ever; the launcher, and its ranks' process ids once they train."""

    def start() -> tuple[subprocess.Popen[str], list[int]]:
        script = 'echo $$ > "pid$RANK"; exec "$0" forecast train "$@"'
        ranks = ["bash", "-c", script, headrace_binary, table, *LONG]
        process = subprocess.Popen(
            [headrace_binary, "run", "-np", "3", *ranks],
            cwd=tmp_path,
            env={**os.environ, "HEADRACE_REGISTRY": str(tmp_path / "registry")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        STARTED.append(process)
        deadline = time.monotonic() + 60
        while not all(trains(tmp_path / f"pid{rank}") for rank in range(3)):
            assert process.poll() is None, "the job ended before it trained"
            assert time.monotonic() < deadline, "not all ranks train"
            time.sleep(0.01)
        return process, [int((tmp_path / f"pid{rank}").read_text()) for rank in range(3)]

    return start


def nothing_registered(folder: Path) -> bool:
    return not list(registry.open(folder).list()) and not list(folder.rglob("*.safetensors"))


def test_a_killed_rank_ends_all_with_its_name_and_leaves_nothing(
    long_training: Started, tmp_path: Path
) -> None:
    process, ranks = long_training()

    os.kill(ranks[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=30)

    assert process.returncode == 1
    assert f"rank 1 on localhost (process {ranks[1]}) was the first, with SIGKILL" in errors
    assert nothing_registered(tmp_path / "registry")


@pytest.mark.parametrize("whom", ["launcher", "rank"])
def test_a_stop_ends_all_ranks_in_order_and_keeps_nothing(
    whom: str, long_training: Started, tmp_path: Path
) -> None:
    process, ranks = long_training()

    os.kill(process.pid if whom == "launcher" else ranks[2], signal.SIGINT)
    _, errors = process.communicate(timeout=30)

    assert process.returncode == (130 if whom == "launcher" else 1)
    if whom == "launcher":
        assert "[0]<stderr>:interrupted: nothing was kept" in errors
    assert "SIGKILL" not in errors
    assert nothing_registered(tmp_path / "registry")
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{rank}").exists() for rank in ranks):
        assert time.monotonic() < deadline, "a rank is left"
        time.sleep(0.01)


def test_the_summary_says_how_many_ranks_there_were(
    table: Path, headrace_binary: Path, run_headrace: Run
) -> None:
    command = ["forecast", "train", table, *SHORT, "--json"]
    done = run_headrace("run", "-np", "2", headrace_binary, *command)

    printed = [line for line in done.stdout.splitlines() if "]<stdout>:" in line]
    assert len(printed) == 1
    assert json.loads(printed[0].split(":", 1)[1])["training"]["ranks"] == 2
