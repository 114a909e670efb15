# SPDX-License-Identifier: Apache-2.0
"""Collectives on GPUs without a GPU: over stand-ins for NCCL and CUDA's runtime (tests/gpu).

What this can show: that the libraries are found or refused, that operations, groups, streams and
errors come through the bindings, and that torch's backend takes its tensors the right way, with CPU
tensors declared to be on a GPU. What it cannot show is that a real NCCL on a GPU does the same:
torch's own streams, its allocator and futures with devices need one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LONG = 120


@pytest.fixture(scope="module")
def fake_gpu(source_root: Path) -> Path:
    """Folder of the stand-ins, which the C++ tests are built with."""
    folder = source_root / "build" / "release" / "tests" / "gpu"
    if not (folder / "good" / "libnccl.so.2").exists():
        pytest.skip(f"{folder} is not built; `ninja -C build/release headrace_fake_gpu` does it")
    return folder


def run_ranks(
    python: str, script: str, folder: Path, folders: list[str], ranks: int = 2, **variables: str
) -> list[str]:
    """What the ranks print, each of which must end well."""
    processes = []
    for rank in range(ranks):
        environment = os.environ | variables
        environment["HEADRACE_GPU_LIBRARIES"] = folders[rank % len(folders)]
        environment["FAKE_NCCL_FOLDER"] = str(folder)
        processes.append(
            subprocess.Popen(
                [python, str(HERE / script), str(rank), str(ranks), str(folder)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    printed = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=LONG)
            assert process.returncode == 0, err
            printed.append(out)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return printed


def told(printed: list[str]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in printed]


def test_operations_of_the_engine_on_gpus(fake_gpu: Path, tmp_path: Path) -> None:
    printed = run_ranks(sys.executable, "gpu_rank.py", tmp_path, [f"{fake_gpu}/good"], ranks=3)
    assert told(printed) == [
        {"sum": [6.0] * 3, "group": [2.0, 0.0], "message": float((rank - 1) % 3)}
        for rank in range(3)
    ]


def test_the_rank_without_nccl_is_named_on_all(fake_gpu: Path, tmp_path: Path) -> None:
    folders = [f"{fake_gpu}/good", f"{fake_gpu}/old:{fake_gpu}/good"]
    for one in told(run_ranks(sys.executable, "gpu_rank.py", tmp_path, folders)):
        assert one["kind"] == "Unsupported"
        assert "rank 1 cannot use it" in one["error"]
        assert "is NCCL 2.17.1; headrace needs 2.18.0 or later" in one["error"]
        assert "HEADRACE_COMM_GPU_STAGING=1" in one["error"]


def test_staging_takes_the_place_of_nccl(fake_gpu: Path, tmp_path: Path) -> None:
    folders = [f"{fake_gpu}/good", f"{fake_gpu}/old:{fake_gpu}/good"]
    printed = run_ranks(
        sys.executable, "gpu_rank.py", tmp_path, folders, HEADRACE_COMM_GPU_STAGING="1"
    )
    assert [one["sum"] for one in told(printed)] == [[3.0] * 3] * 2
    assert [one["message"] for one in told(printed)] == [1.0, 0.0]


def test_torch_tensors_on_gpus_go_through_nccl(
    fake_gpu: Path, tmp_path: Path, reference_python: Path, source_root: Path
) -> None:
    printed = run_ranks(
        str(reference_python), "torch_gpu_rank.py", tmp_path, [f"{fake_gpu}/good"],
        PYTHONPATH=str(source_root / "python"),
    )  # fmt: skip
    assert printed == ["good\n", "good\n"]


def test_a_torch_without_cuda_notices_nothing(reference_python: Path, source_root: Path) -> None:
    script = """
        import torch
        import headrace.torch
        from headrace.torch import _devices
        assert torch.distributed.Backend.backend_capability["headrace"] == ["cpu", "cuda"]
        assert torch.cuda.is_available() or _devices.types() == [torch.device("cpu")]
        assert torch.backends.cuda.is_built() or _devices.library_folders() == []
        assert not torch.cuda.is_initialized()
        try:
            _devices.memory(torch.empty(2, device="meta"))
        except headrace.Unsupported as error:
            assert "on meta" in str(error)
        else:
            raise SystemExit("a tensor without memory was taken")
        with open("/proc/self/maps") as maps:
            text = maps.read()
        assert "libnccl" not in text or torch.backends.cuda.is_built()
    """
    done = subprocess.run(
        [str(reference_python), "-c", textwrap.dedent(script)],
        env=os.environ | {"PYTHONPATH": str(source_root / "python")},
        capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def check_build(binary: Path, folders: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [str(binary), "run", "--check-build", "--json"],
        env=os.environ | {"HEADRACE_GPU_LIBRARIES": folders},
        capture_output=True, text=True, timeout=LONG, check=True,
    )  # fmt: skip
    return {part["name"]: part for part in json.loads(done.stdout)["parts"]}


def test_check_build_says_which_nccl_is_found(fake_gpu: Path, headrace_binary: Path) -> None:
    parts = check_build(headrace_binary, f"{fake_gpu}/good")
    assert parts["nccl"]["usable"] is True
    assert f"NCCL 2.21.5, {fake_gpu}/good/libnccl.so.2" in parts["nccl"]["found"]
    assert "untested on a GPU" in parts["nccl"]["found"]
    assert parts["cuda"]["found"] == f"{fake_gpu}/good/libcudart.so.12, 8 GPUs"


def test_check_build_says_why_an_nccl_cannot_be_used(fake_gpu: Path, headrace_binary: Path) -> None:
    parts = check_build(headrace_binary, f"{fake_gpu}/old")
    assert parts["nccl"]["usable"] is False
    assert "is NCCL 2.17.1; headrace needs 2.18.0 or later" in parts["nccl"]["found"]
    parts = check_build(headrace_binary, f"{fake_gpu}/lacking")
    assert "has no function ncclSend" in parts["nccl"]["found"]
