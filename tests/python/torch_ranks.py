# SPDX-License-Identifier: Apache-2.0
"""Ranks for test_torch_backend.py, started in an environment that has torch.

Usage: torch_ranks.py CASE RANKS FOLDER. Prints one JSON line per rank, in order; exit code 1 when a
rank raised.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

CASES: dict[str, Callable[[int, int], Any]] = {}


def case(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    CASES[function.__name__] = function
    return function


def expected(op: str, values: list[torch.Tensor]) -> torch.Tensor:
    """By torch itself, in double or in whole numbers."""
    stack = torch.stack(
        [v.to(torch.float64 if v.is_floating_point() else torch.int64) for v in values]
    )
    return {
        "SUM": lambda: stack.sum(0),
        "AVG": lambda: stack.mean(0),
        "MIN": lambda: stack.min(0).values,
        "MAX": lambda: stack.max(0).values,
        "PRODUCT": lambda: stack.prod(0),
    }[op]()


@case
def reductions(rank: int, size: int) -> None:
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    ):  # fmt: skip
        for op in ("SUM", "MIN", "MAX", "PRODUCT", "AVG"):
            if op == "AVG" and not dtype.is_floating_point:
                continue
            for shape in ((), (0,), (1,), (7, 3), (129, 65)):
                all_values = [
                    torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(r)).to(dtype)
                    for r in range(size)
                ]
                tensor = all_values[rank].clone()
                dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
                wanted = expected(op, all_values)
                tolerance = 0 if op != "AVG" else 1e-2 if tensor.element_size() == 2 else 1e-6
                assert torch.allclose(tensor.to(wanted.dtype), wanted, rtol=tolerance, atol=0), (
                    dtype, op, shape,
                )  # fmt: skip
    whole = torch.tensor([0b1100 + rank, 3])
    dist.all_reduce(whole, op=dist.ReduceOp.BAND)
    assert whole.tolist() == [0b1100, 3]
    truth = torch.tensor([rank == 0, True, False])
    dist.all_reduce(truth, op=dist.ReduceOp.SUM)
    assert truth.tolist() == [True, True, False]
    pair = torch.full((3,), complex(1, rank))
    dist.all_reduce(pair)
    assert pair.tolist() == [complex(size, size * (size - 1) / 2)] * 3
    columns = torch.full((3, 4), float(rank)).t()  # not contiguous
    dist.all_reduce(columns)
    assert columns.eq(size * (size - 1) / 2).all()
    root = torch.full((5,), float(rank))
    dist.reduce(root, dst=size - 1)
    assert root.eq(size * (size - 1) / 2 if rank == size - 1 else rank).all()


@case
def movements(rank: int, size: int) -> None:
    ours = torch.full((2, 3), float(rank))
    every = [torch.empty(3, 2).t() for _ in range(size)]
    dist.all_gather(every, ours)
    assert [int(t[0, 0]) for t in every] == list(range(size))
    flat = torch.empty(2 * size, 3)
    dist.all_gather_single(flat, ours)
    assert torch.equal(flat, torch.cat(every))
    ragged = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(ragged, torch.full((rank + 1,), float(rank)))
    assert [t.tolist() for t in ragged] == [[float(r)] * (r + 1) for r in range(size)]

    part = torch.empty(2)
    dist.reduce_scatter_single(part, torch.arange(2.0 * size) + rank)
    shift = size * (size - 1) / 2
    assert part.tolist() == [size * 2.0 * rank + shift, size * (2.0 * rank + 1) + shift]
    dist.reduce_scatter(part, [torch.full((2,), float(r + rank)) for r in range(size)])
    assert part.tolist() == [size * rank + shift] * 2

    swapped = torch.empty(size)
    dist.all_to_all_single(swapped, torch.arange(float(size)) + 10 * rank)
    assert swapped.tolist() == [rank + 10.0 * r for r in range(size)]
    sends = [r + 1 for r in range(size)]
    uneven = torch.empty(size * (rank + 1))
    dist.all_to_all_single(uneven, torch.full((sum(sends),), float(rank)), [rank + 1] * size, sends)
    assert uneven.tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
    lists = [torch.empty(r + 1) for r in range(size)]
    dist.all_to_all(lists, [torch.full((rank + 1,), float(rank))] * size)
    assert [t.tolist() for t in lists] == [[float(r)] * (r + 1) for r in range(size)]

    word = torch.tensor([rank, 1])
    dist.broadcast(word, src=size - 1)
    assert word.tolist() == [size - 1, 1]
    mine = torch.empty(2)
    dist.scatter(mine, [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None)
    assert mine.tolist() == [rank, rank]
    at_root = [torch.empty(2) for _ in range(size)] if rank == 0 else None
    dist.gather(mine, at_root)
    assert at_root is None or [int(t[0]) for t in at_root] == list(range(size))

    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
    assert objects == [{"rank": r, "text": "x" * r * 1000} for r in range(size)]
    one = [{"a": 1}] if rank == 0 else [None]
    dist.broadcast_object_list(one)
    assert one == [{"a": 1}]
    dist.barrier()


@case
def messages(rank: int, size: int) -> None:
    following, before = (rank + 1) % size, (rank - 1) % size
    for shape in ((), (0,), (7, 3), (300, 1000)):
        out = torch.full(shape, float(rank))
        got = torch.empty(shape)
        works = [dist.isend(out, following, tag=3), dist.irecv(got, before, tag=3)]
        for work in works:
            work.wait()
        assert torch.equal(got, torch.full(shape, float(before)))
    # Strided, of a type that is moved only, and several at once.
    wide = torch.zeros(4, 6, dtype=torch.complex64)
    ops = [
        dist.P2POp(dist.isend, torch.full((4,), rank + 1j, dtype=torch.complex64), following),
        dist.P2POp(dist.irecv, wide[:, 2], before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(wide[:, 2], torch.full((4,), before + 1j, dtype=torch.complex64))
    if rank == 0:
        seen = []
        for _ in range(size - 1):
            got = torch.empty(5)
            seen.append(dist.recv(got, tag=9))
            assert torch.equal(got, torch.full((5,), float(seen[-1])))
        assert sorted(seen) == list(range(1, size))
    else:
        dist.send(torch.full((5,), float(rank)), 0, tag=9)
    # In a group whose ranks are in another order than the world's.
    group = dist.new_group([size - 1, 0])
    if rank in (0, size - 1):
        got = torch.empty(2)
        other = size - 1 - rank
        if rank == 0:
            dist.send(torch.tensor([4.0, 5.0]), other, group=group)
        else:
            dist.recv(got, other, group=group)
            assert got.tolist() == [4.0, 5.0]


@case
def groups(rank: int, size: int) -> None:
    halves = [dist.new_group(list(range(size // 2))), dist.new_group(list(range(size // 2, size)))]
    ours = halves[0] if rank < size // 2 else halves[1]
    for length in (1, 1000, 100_000):
        works = [dist.all_reduce(torch.ones(length), group=ours, async_op=True) for _ in range(5)]
        world = torch.ones(length)
        dist.all_reduce(world)
        assert world.eq(size).all()
        for work in works:
            work.wait()
            assert work.is_completed() and work.is_success()
            assert work.get_future().wait()[0].eq(dist.get_world_size(ours)).all()


@case
def ddp(rank: int, size: int) -> None:
    """Gradients of a global batch are those of one process, in each of DDP's modes."""
    modes: list[dict[str, Any]] = [
        {}, {"gradient_as_bucket_view": True}, {"static_graph": True},
        {"find_unused_parameters": True}, {"bucket_cap_mb": 0.001},
    ]  # fmt: skip
    for mode in modes:
        torch.manual_seed(0)
        layers = lambda: torch.nn.Sequential(  # noqa: E731
            torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3)
        )
        model, single = layers(), layers()
        single.load_state_dict(model.state_dict())
        parallel = DistributedDataParallel(model, **mode)
        inputs = torch.randn(size * 8, 20)
        for trained, batch in ((parallel, inputs[rank * 8 : rank * 8 + 8]), (single, inputs)):
            optimizer = torch.optim.SGD(trained.parameters(), 0.1)
            for _ in range(3):
                optimizer.zero_grad()
                trained(batch).square().mean().backward()
                optimizer.step()
        for ours, wanted in zip(model.parameters(), single.parameters(), strict=True):
            assert torch.allclose(ours, wanted, atol=1e-6), mode


@case
def death(rank: int, size: int) -> str:
    if rank == 1:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(100_000))
    except RuntimeError as error:
        assert time.monotonic() - start < 10
        return f"{type(error).__name__}: {error}"


@case
def late(rank: int, size: int) -> str:
    if rank == 1:
        time.sleep(2.0)
    group_error = ""
    try:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        work.wait(timedelta(seconds=0.2))
    except RuntimeError as error:
        group_error = f"{type(error).__name__}: {error}"
    work.wait()  # it goes on
    return group_error


@case
def mismatch(rank: int, size: int) -> str:
    try:
        dist.all_reduce(torch.ones(10 + rank))
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def run_rank(rank: int, name: str, size: int, folder: str) -> None:
    import headrace.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group(
        "headrace",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    answer = CASES[name](rank, size)
    Path(folder, f"rank{rank}.json").write_text(json.dumps(answer))
    dist.destroy_process_group()


def main() -> int:
    name, size, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    context = mp.get_context("spawn")
    ranks = [
        context.Process(target=run_rank, args=(rank, name, size, folder)) for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(100)
        if process.is_alive():
            process.kill()
    for rank in range(size):
        path = Path(folder, f"rank{rank}.json")
        print(path.read_text() if path.exists() else "null")
    return int(any(process.exitcode not in (0, -signal.SIGKILL) for process in ranks))


if __name__ == "__main__":
    sys.exit(main())
