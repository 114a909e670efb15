# SPDX-License-Identifier: Apache-2.0
"""Ranks on little machines: no room in /dev/shm, one core for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conftest import ROOT

LONG = 200.0
RANKS = 4

# By name, in order, in a set of its own.
ALL_KINDS = """
    import array, numpy as np
    import headrace
    from headrace._native import comm
    headrace.init()
    size, rank = headrace.size(), headrace.rank()
    total = size * (size + 1) / 2
    for count in (1, 1000, 1_000_000):
        mine = np.full(count, rank + 1.0, np.float32)
        assert headrace.allreduce(mine, op=headrace.Sum, name=f"sum{count}")[-1] == total
        assert headrace.broadcast(mine, size - 1, name=f"sent{count}")[-1] == size
        assert headrace.allgather(mine, name=f"all{count}")[-1] == size
        assert len(headrace.reducescatter(np.ones(count * size), name=f"part{count}")) == count
        assert len(headrace.alltoall(np.ones(count * size), name=f"swap{count}")) == count * size
    pair = headrace.add_process_set([0, size - 1])
    if pair.included():
        both = headrace.allreduce(np.ones(100_000), op=headrace.Sum, process_set=pair)
        assert both[0] == 2.0
    headrace.barrier()
    headrace.shutdown()
    print("done")
"""

# DDP steps, and a rank that lets the others wait: they must not need the core for it.
TRAINING = """
    import os, time, torch, torch._dynamo, torch.distributed as dist
    import headrace.torch
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # not while torch is loaded
    dist.init_process_group("headrace")
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.full((8, 300), float(dist.get_rank()))).square().mean().backward()
        optimizer.step()
    dist.barrier()
    if dist.get_rank() == 0:
        time.sleep(2.0)
    began, used = time.monotonic(), time.process_time()
    dist.barrier()
    waited, used = time.monotonic() - began, time.process_time() - used
    assert dist.get_rank() == 0 or used < waited / 4, (used, waited)
    first = model.module[0].weight.sum()
    every = [torch.zeros_like(first) for _ in range(dist.get_world_size())]
    dist.all_gather(every, first.detach())
    assert all(one == first for one in every)
    dist.destroy_process_group()
    print("done")
"""


def launch(
    binary: Path, before: list[str], python: Path | str, script: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *before,
            str(binary),
            "run",
            "-np",
            str(RANKS),
            str(python),
            "-c",
            textwrap.dedent(script),
        ],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )


@pytest.mark.parametrize(
    "prepare",
    [
        "mount -t tmpfs -o size=64k tmpfs /dev/shm && ! cat /dev/zero 2>&- > /dev/shm/full",
        "mount -t tmpfs -o size=64m tmpfs /dev/shm",
        "mount -t tmpfs -o size=64k,ro tmpfs /dev/shm",
    ],
    ids=["full", "of a container", "read only"],
)
def test_the_size_of_dev_shm_does_not_matter(headrace_binary: Path, prepare: str) -> None:
    own = ["unshare", "--mount", "sh", "-c", f'{prepare} && exec "$@"', "sh"]
    tried = subprocess.run([*own, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no mounts of one's own here: {tried.stderr.strip()}")
    done = launch(headrace_binary, own, sys.executable, ALL_KINDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == RANKS


def test_all_kinds_finish_on_one_core(headrace_binary: Path) -> None:
    core = str(min(os.sched_getaffinity(0)))
    done = launch(headrace_binary, ["taskset", "-c", core], sys.executable, ALL_KINDS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == RANKS


def test_training_steps_finish_on_one_core(headrace_binary: Path, reference_python: Path) -> None:
    done = launch(headrace_binary, [], reference_python, TRAINING)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == RANKS
