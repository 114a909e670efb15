# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over the backend "headrace", with real torch in ranks of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("torch_ranks.py")

Ranks = Callable[[str, int], list[Any]]


@pytest.fixture
def ranks(reference_python: Path, source_root: Path, tmp_path: Path) -> Ranks:
    def run(case: str, size: int) -> list[Any]:
        ended = subprocess.run(
            [reference_python, WORKER, case, str(size), tmp_path],
            env={**os.environ, "PYTHONPATH": str(source_root / "python")},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4000:]
        assert "leaked" not in ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()[-size:]]

    return run


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("case", ["reductions", "movements"])
def test_collectives_give_what_torch_computes_alone(ranks: Ranks, case: str, size: int) -> None:
    assert ranks(case, size) == [None] * size


@pytest.mark.parametrize("size", [2, 3])
def test_messages_reach_whom_they_are_for(ranks: Ranks, size: int) -> None:
    assert ranks("messages", size) == [None] * size


def test_groups_work_beside_one_another(ranks: Ranks) -> None:
    assert ranks("groups", 4) == [None] * 4


@pytest.mark.parametrize("size", [1, 2])
def test_ddp_trains_as_one_process_would(ranks: Ranks, size: int) -> None:
    assert ranks("ddp", size) == [None] * size


def test_the_death_of_a_rank_is_told_to_the_others(ranks: Ranks) -> None:
    first, dead, last = ranks("death", 3)
    assert dead is None
    for text in (first, last):
        assert text.startswith("PeerDead: comm: rank 1 on ")


def test_a_wait_that_is_over_leaves_the_operation_running(ranks: Ranks) -> None:
    first, second = ranks("late", 2)
    assert first.startswith("Timeout: comm: all_reduce(sum) float32[10] (operation 1) is not done")
    assert second == ""


def test_different_calls_are_told_with_both_descriptions(ranks: Ranks) -> None:
    for text in ranks("mismatch", 2):
        assert text.startswith("Mismatch: comm: operation 1 is all_reduce(sum) float32[1")
        assert "float32[10]" in text
        assert "float32[11]" in text


def test_the_example_trains_under_torchrun(reference_python: Path, source_root: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [reference_python, *launch, source_root / "examples/torch_ddp/train.py"],
        env={**os.environ, "PYTHONPATH": str(source_root / "python"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout == "2 ranks, loss 0.000000\n"
