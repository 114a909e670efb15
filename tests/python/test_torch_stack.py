# SPDX-License-Identifier: Apache-2.0
"""What stands on torch.distributed, over the backend "headrace", with real ranks.

Cases of one module and number of ranks share the process that imports torch; see torch_bundle.py.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

BUNDLES: dict[tuple[str, int], list[str]] = {
    ("torch_cases_data_parallel", 2): [
        "ddp_modes", "ddp_accumulates_without_sync", "ddp_join", "ddp_hooks",
        "ddp_bf16_hook_rounds_once", "ddp_powersgd", "ddp_with_sparse_gradients",
        "zero_redundancy_optimizer", "post_local_sgd", "coalesced", "objects",
        "methods_of_the_group",
    ],
    ("torch_cases_sharded", 2): [
        "fsdp2", "fsdp2_mixed_precision", "fsdp1", "dtensor", "tensor_parallel_of_two",
        "checkpoint", "functional_under_compile", "ddp_under_compile", "autograd_of_collectives",
    ],
    ("torch_cases_sharded", 4): [
        "hybrid_sharding", "dtensor_of_two_dimensions", "tensor_parallel_in_a_mesh",
        "groups_and_meshes",
    ],
    ("torch_cases_frameworks", 2): ["accelerate_trains", "lightning_trains", "deepspeed_trains"],
    ("torch_cases_faults", 3): [
        "killed_in_training", "exception_of_a_rank", "leaving_early", "late_rank",
        "monitored_barrier_names_who_is_missing", "different_calls_and_a_new_group", "aborted",
        "init_without_a_rank",
    ],
    ("torch_cases_faults", 2): [
        "hundred_cycles", "dropped_works", "forked_loaders",
    ],
}  # fmt: skip

# Ranks that end before their case does, by exit code.
DEATHS: dict[str, dict[int, int]] = {
    "killed_in_training": {1: -9}, "exception_of_a_rank": {1: 1}, "leaving_early": {1: 0},
}  # fmt: skip

Bundle = Callable[[str, int], dict[str, list[Any]]]


@pytest.fixture(scope="module")
def bundle(
    reference_python: Path, source_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    """What the ranks of each case of a bundle left; it runs once."""

    @functools.cache
    def run(module: str, size: int) -> dict[str, list[Any]]:
        folder = tmp_path_factory.mktemp(module)
        cases = BUNDLES[module, size]
        ended = subprocess.run(
            [reference_python, HERE / "torch_bundle.py", module, str(size), folder, *cases],
            env={
                **os.environ,
                "PYTHONPATH": f"{source_root / 'python'}:{HERE}",
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            timeout=60 * len(cases),
            check=False,
        )
        assert "leaked" not in ended.stderr

        def left(path: Path) -> Any:
            return json.loads(path.read_text()) if path.exists() else {"traceback": ended.stderr}

        return {
            case: [left(folder / f"{case}.{rank}.json") for rank in range(size)] for case in cases
        }

    return run


@pytest.mark.parametrize(
    ("module", "size", "case"),
    [(module, size, case) for (module, size), cases in BUNDLES.items() for case in cases],
)
def test_case(bundle: Bundle, module: str, size: int, case: str) -> None:
    for rank, left in enumerate(bundle(module, size)[case]):
        assert "traceback" not in left, f"rank {rank}: {left['traceback'][-4000:]}"
        expected = DEATHS.get(case, {}).get(rank)
        assert left.get("ended") == expected, f"rank {rank} ended with {left.get('ended')}"
