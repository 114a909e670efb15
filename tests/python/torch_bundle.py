# SPDX-License-Identifier: Apache-2.0
"""Ranks for test_torch_stack.py: many cases in one set of processes, for importing torch is slow.

Usage: torch_bundle.py MODULE RANKS FOLDER CASE... Each case gets a process group of its own and
leaves FOLDER/CASE.RANK.json: what the case answered, or the traceback that ended it.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
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

CASE_LIMIT_S = 40.0
DEAD_LIMIT_S = 5.0

Case = Callable[[int, int], Any]


def start_group(backend: str, store: Path, rank: int, size: int) -> None:
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=CASE_LIMIT_S),
    )


def run_rank(cases: dict[str, Case], rank: int, size: int, folder: Path) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(15)
    torch.set_num_threads(1)
    # What torch, Lightning, Accelerate and DeepSpeed read.
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "CASE_FOLDER": str(folder),
    }  # fmt: skip
    for name, case in cases.items():
        began = time.monotonic()
        try:
            start_group("headrace", folder / f"{name}.store", rank, size)
            answer = {"answer": case(rank, size)}
        except BaseException:
            answer = {"traceback": traceback.format_exc()}
        answer["seconds"] = round(time.monotonic() - began, 2)
        Path(folder, f"{name}.{rank}.json").write_text(json.dumps(answer))
        if dist.is_initialized():
            dist.destroy_process_group()


def main() -> int:
    module = importlib.import_module(sys.argv[1])
    size, folder = int(sys.argv[2]), Path(sys.argv[3])
    cases = {name: module.CASES[name] for name in sys.argv[4:]}
    context = multiprocessing.get_context("fork")  # torch is imported, and nothing runs yet
    ranks = [
        context.Process(target=run_rank, args=(cases, rank, size, folder)) for rank in range(size)
    ]
    for process in ranks:
        process.start()
    end = time.monotonic() + CASE_LIMIT_S * len(cases)
    left = {process.sentinel: process for process in ranks}
    while left and time.monotonic() < end:
        for sentinel in multiprocessing.connection.wait(list(left), 1.0):
            if left.pop(sentinel).exitcode != 0:  # the others would wait for it in each case to come
                end = min(end, time.monotonic() + DEAD_LIMIT_S)
    for process in left.values():
        process.kill()
    for rank, process in enumerate(ranks):
        process.join()
        if process.exitcode != 0:
            print(f"rank {rank} ended with {process.exitcode}", file=sys.stderr)
    return int(any(process.exitcode != 0 for process in ranks))


if __name__ == "__main__":
    sys.exit(main())
