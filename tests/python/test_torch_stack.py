# SPDX-License-Identifier: Apache-2.0
"""What stands on torch.distributed, over the backend "headrace", with real ranks.

Cases of one module and number of ranks share one set of processes; each has a test of its own.
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
