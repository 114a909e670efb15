# SPDX-License-Identifier: Apache-2.0
"""One rank for test_gpu_paths.py: torch's backend as if CPU tensors were on a GPU.

The stand-in for CUDA takes memory of the process for a device's, so only what asks torch where a
tensor is has to be replaced. CPU tensors are read without a stream, so each wait is the CPU's too.
Usage: torch_gpu_rank.py RANK RANKS FOLDER.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist

import headrace.torch  # noqa: F401
from headrace.torch import _devices, _works

RANK, RANKS, FOLDER = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
GPU_WORKS: list[Any] = []


def hold_up(stream: int, work: Any) -> None:
    GPU_WORKS.append(work)
    work.wait_on_stream(stream)
    work.wait(20.0)


def main() -> None:
    _devices.on_gpu = lambda tensor: True
    _devices.current_stream = lambda device: 0
    _devices.hold_up = hold_up
    _devices.future_of = lambda device: torch.futures.Future()
    dist.init_process_group(
        "headrace", init_method=f"file://{FOLDER}/store", rank=RANK, world_size=RANKS
    )

    work = dist.all_reduce(values := torch.full((3,), RANK + 1.0), async_op=True)
    assert type(work) is _works.GpuWork
    work.wait()
    assert values.tolist() == [3.0] * 3
    assert work.get_future().wait()[0] is values

    across = torch.arange(6.0).reshape(2, 3).t()  # not contiguous: through a copy
    dist.all_reduce(across)
    assert torch.equal(across, 2 * torch.arange(6.0).reshape(2, 3).t())

    dist.broadcast(flag := torch.tensor([RANK, 7]), 1)
    assert flag.tolist() == [1, 7]
    dist.all_gather(parts := [torch.zeros(2) for _ in range(2)], torch.full((2,), float(RANK)))
    assert [part.tolist() for part in parts] == [[0, 0], [1, 1]]
    dist.all_gather_into_tensor(whole := torch.zeros(4), torch.full((2,), float(RANK)))
    assert whole.tolist() == [0, 0, 1, 1]
    dist.reduce_scatter_tensor(part := torch.zeros(2), torch.arange(4.0), op=dist.ReduceOp.AVG)
    assert part.tolist() == [2 * RANK, 2 * RANK + 1]
    dist.all_to_all_single(out := torch.zeros(2), torch.tensor([10.0 * RANK, 10.0 * RANK + 1]))
    assert out.tolist() == [RANK, 10 + RANK]
    gathered = [torch.zeros(1) for _ in range(2)] if RANK == 0 else None
    dist.gather(torch.tensor([5.0 + RANK]), gathered, 0)
    assert gathered is None or [one.item() for one in gathered] == [5, 6]
    dist.scatter(piece := torch.zeros(1), gathered, 0)
    assert piece.item() == 5 + RANK
    sent = dist.isend(torch.full((4,), float(RANK)), 1 - RANK)
    dist.recv(got := torch.zeros(4), 1 - RANK)
    sent.wait()
    assert got.tolist() == [1 - RANK] * 4

    group = dist.distributed_c10d._get_default_group()
    several = [torch.full((2,), RANK + 1.0), torch.full((5,), 10.0 * RANK)]
    group.allreduce_coalesced(several).wait()
    assert [one[0].item() for one in several] == [3, 10]

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    before = len(GPU_WORKS)
    model(torch.full((3, 4), RANK + 1.0)).sum().backward()
    assert torch.allclose(model.module.weight.grad, torch.full((2, 4), 4.5))
    assert len(GPU_WORKS) > before

    group.barrier().wait()
    dist.destroy_process_group()
    print("good")


main()
