# SPDX-License-Identifier: Apache-2.0
"""Horovod's names over real ranks: one launch for each number of ranks and module of cases."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import STARTED
from hvd_ranks import free_port

HERE = Path(__file__).parent
BASIC, OPTIMIZER = "hvd_basic_cases", "hvd_optimizer_cases"

ON_TWO = (
    "queries again reductions any_order movements groups sparse refused_here mismatches gradients "
    "transforms objects dropped flat_memory joins an_exception killed ends_early interrupted forks "
    "arrays jax_arrays timelines tuned stalled"
)
OPTIMIZER_ON_TWO = (
    "as_one_process stays_what_it_was arguments passes unused clipping scaler gan embeddings "
    "adasum states batch_norm uneven wrong_gradient long_run odd_parameters after_another_init"
)
CASES = {
    (BASIC, 1): "queries reductions movements groups sparse refused_here gradients objects arrays",
    (BASIC, 2): ON_TWO,
    (BASIC, 3): (
        "sets joins reductions movements mismatches gradients an_exception killed arrays "
        "part_of_the_world"
    ),
    (OPTIMIZER, 1): "as_one_process passes clipping scaler adasum states",
    (OPTIMIZER, 2): OPTIMIZER_ON_TWO,
    (OPTIMIZER, 3): "unused embeddings batch_norm uneven in_sets",
    (OPTIMIZER, 4): "adasum",
}

Launch = Callable[[str, int], dict[str, list[Any]]]


@pytest.fixture(scope="module")
def launch(reference_python: Path, source_root: Path) -> Launch:
    """Answers of the ranks by case; all cases of a module and a size run in one process."""
    done: dict[tuple[str, int], dict[str, list[Any]]] = {}

    def run(module: str, size: int) -> dict[str, list[Any]]:
        if (module, size) not in done:
            cases = CASES[module, size].split()
            ended = subprocess.run(
                [reference_python, HERE / "hvd_ranks.py", str(size), module, *cases],
                env={**os.environ, "PYTHONPATH": f"{source_root / 'python'}:{HERE}"},
                capture_output=True,
                text=True,
                timeout=130 * len(cases),
                check=False,
            )
            assert "leaked" not in ended.stderr
            lines = [line for line in ended.stdout.splitlines() if line.startswith('{"case"')]
            done[module, size] = {one["case"]: one["ranks"] for one in map(json.loads, lines)}
            assert ended.returncode == 0, ended.stderr[-4000:]
        return done[module, size]

    return run


@pytest.mark.parametrize(
    ("module", "size", "case"),
    [
        pytest.param(module, size, case, id=f"{case}-{size}")
        for (module, size), cases in CASES.items()
        for case in cases.split()
    ],
)
def test_ranks_agree(launch: Launch, module: str, size: int, case: str) -> None:
    for rank, (passed, answer) in enumerate(launch(module, size)[case]):
        assert passed, f"rank {rank}: {answer}"


def test_a_mismatch_has_one_text_on_all_ranks_and_lists_them(launch: Launch) -> None:
    first, second, third = (answer for _, answer in launch(BASIC, 3)["mismatches"])
    assert first == second == third
    assert "float32 on ranks 0-1, int32 on rank 2" in first[0]


def test_an_exception_is_told_to_the_others_with_its_last_line(launch: Launch) -> None:
    for rank, (_, text) in enumerate(launch(BASIC, 3)["an_exception"]):
        if rank != 1:
            assert "rank 1" in text
            assert "ValueError: batch 17 holds NaN" in text
            assert "hvd_basic_cases.py:" in text


def test_the_death_of_a_rank_fails_what_is_pending_and_names_it(launch: Launch) -> None:
    answers = [answer for _, answer in launch(BASIC, 3)["killed"]]
    assert answers[1] == {"status": 9}
    for text in (answers[0], answers[2]):
        assert "rank 1 on " in text


def test_a_shutdown_is_told_to_the_others(launch: Launch) -> None:
    assert "shut down by rank 1" in launch(BASIC, 2)["ends_early"][0][1]


def test_a_gradient_that_differs_is_named(launch: Launch) -> None:
    for _, text in launch(OPTIMIZER, 2)["wrong_gradient"]:
        assert '"allreduce.extra"' in text


def test_the_state_of_every_optimizer_is_sent_fresh_and_restored(launch: Launch) -> None:
    for _, seen in launch(OPTIMIZER, 2)["states"]:
        assert seen >= 60


def run_script(
    python: Path, source_root: Path, size: int, words: list[Any], codes: tuple[int, ...] = (0, 0)
) -> list[str]:
    """Standard output of each rank of a script."""
    port = free_port()
    variables = {**os.environ, "PYTHONPATH": str(source_root / "python"), "OMP_NUM_THREADS": "1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    processes = [
        subprocess.Popen(
            [python, *words],
            env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    STARTED.extend(processes)
    ended = [process.communicate(timeout=200) for process in processes]
    for process, code, (_, errors) in zip(processes, codes, ended, strict=True):
        assert process.returncode == code, errors[-4000:]
        assert "leaked" not in errors
    return [output for output, _ in ended]


@pytest.mark.parametrize(
    "options",
    ["", "--fp16-allreduce --batches-per-allreduce 2 --samples 510", "--use-adasum"],
    ids=["plain", "compressed", "adasum"],
)
def test_an_old_script_trains_after_one_changed_line(
    reference_python: Path, source_root: Path, options: str
) -> None:
    script = source_root / "examples/horovod_mnist.py"
    ours = [line for line in script.read_text().splitlines() if "headrace." in line]
    assert ours == ["import headrace.torch as hvd"]

    first, second = run_script(reference_python, source_root, 2, [script, *options.split()])

    assert second == ""
    last = re.fullmatch(r"epoch 3: test loss [0-9.]+, accuracy ([0-9.]+) %", first.splitlines()[-1])
    assert last is not None
    assert float(last[1]) > 90


def test_collectives_of_arrays_import_no_framework(source_root: Path) -> None:
    code = (
        "import sys, headrace\n"
        "headrace.init()\n"
        "assert headrace.allreduce([1.0, 2.0]).tolist() == [1.0, 2.0]\n"
        "assert 'torch' not in sys.modules"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(source_root / "python")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "leaked" not in told.stderr


def test_an_uncaught_exception_of_a_script_reaches_the_others(
    reference_python: Path, source_root: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "import headrace.torch as hvd\n"
        "hvd.init()\n"
        "hvd.allreduce(torch.ones(1))\n"
        "try:\n"
        "    if hvd.rank() == 0:\n"
        "        hvd.allreduce(torch.ones(1), name='lonely')\n"
        "except hvd.HorovodInternalError as error:\n"
        "    print(error)\n"
        "if hvd.rank() == 1:\n"
        "    {}['learning_rate']\n"
    )

    first, _ = run_script(reference_python, source_root, 2, [script], codes=(0, 1))

    assert "rank 1" in first
    assert "KeyError: 'learning_rate'" in first
    assert "train.py:11" in first
