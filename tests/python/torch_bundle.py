# SPDX-License-Identifier: Apache-2.0
"""Ranks for test_torch_stack.py, forked from one process per bundle, for importing torch is slow.

Usage: torch_bundle.py MODULE RANKS FOLDER CASE... Each case gets ranks and a process group of its
own and leaves FOLDER/CASE.RANK.json: its answer, or the traceback or exit code that ended it.
CASE@NUMBER leaves it in FOLDER/NUMBER, for the same case again and again.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import headrace.torch  # noqa: F401

CASE_LIMIT_S = 120.0

Case = Callable[[int, int], Any]


def start_group(backend: str, store: Path, rank: int, size: int) -> None:
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=CASE_LIMIT_S),
    )


def run_rank(name: str, case: Case, rank: int, size: int, folder: Path) -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    # What torch, Lightning, Accelerate and DeepSpeed read.
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "CASE_FOLDER": str(folder),
    }  # fmt: skip
    left: dict[str, Any] = {}
    began = time.monotonic()
    try:
        start_group("headrace", folder / f"{name}.store", rank, size)
        left["answer"] = case(rank, size)
    except BaseException:
        left["traceback"] = traceback.format_exc()
    left["seconds"] = round(time.monotonic() - began, 2)
    Path(folder, f"{name}.{rank}.json").write_text(json.dumps(left))
    if dist.is_initialized():
        dist.destroy_process_group()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_case(name: str, case: Case, size: int, folder: Path) -> None:
    os.environ["FREE_PORT"] = free_port()
    context = multiprocessing.get_context("fork")  # torch is imported, and nothing runs yet
    ranks = [
        context.Process(target=run_rank, args=(name, case, rank, size, folder))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    end = time.monotonic() + CASE_LIMIT_S + 5.0  # the group's own errors come first
    for rank, process in enumerate(ranks):
        process.join(max(end - time.monotonic(), 0.1))
        if process.is_alive():
            process.kill()
            process.join()
        path = folder / f"{name}.{rank}.json"
        if not path.exists():
            path.write_text(json.dumps({"ended": process.exitcode}))


def main() -> int:
    module = importlib.import_module(sys.argv[1])
    size, folder = int(sys.argv[2]), Path(sys.argv[3])
    for word in sys.argv[4:]:
        name, _, number = word.partition("@")
        place = folder / number
        place.mkdir(exist_ok=True)
        run_case(name, module.CASES[name], size, place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
