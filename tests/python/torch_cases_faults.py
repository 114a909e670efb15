# SPDX-License-Identifier: Apache-2.0
"""Cases of test_torch_stack.py: what users see when ranks die, lag, differ, fork or restart."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP wants it; loaded once, before the ranks are forked
import torch.distributed as dist
import torch.utils.data
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import headrace
import headrace.torch as headrace_torch

CASES: dict[str, Callable[[int, int], Any]] = {}


def case(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    CASES[function.__name__] = function
    return function


def raised(call: Callable[[], Any]) -> RuntimeError:
    """The error that `call` ends with, which is torch's as well as ours."""
    began = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        assert time.monotonic() - began < 10, error
        return error
    raise AssertionError("nothing was raised")


def forever(call: Callable[[], Any]) -> Callable[[], None]:
    def again() -> None:
        while True:
            call()

    return again


@case
def killed_in_training(rank: int, size: int) -> None:
    """Inside backward() torch raises an error of its own with our text; then ours are raised."""
    model = DistributedDataParallel(nn.Linear(300, 300))
    if rank == 1:
        model(torch.ones(2, 300)).sum().backward()
        os.kill(os.getpid(), signal.SIGKILL)
    error = raised(forever(lambda: model(torch.ones(2, 300)).sum().backward()))
    assert "rank 1 on" in str(error) and "died" in str(error), error
    error = raised(lambda: dist.all_reduce(torch.ones(3)))
    assert isinstance(error, headrace.PeerDead) and isinstance(error, dist.DistBackendError)
    assert error.origin["rank"] == 1, error.origin


@case
def exception_of_a_rank(rank: int, size: int) -> None:
    if rank == 1:
        dist.all_reduce(torch.ones(3))  # the others may hear of what follows before this has ended
        try:
            raise ValueError("no such column: price")
        except ValueError as error:
            sys.excepthook(type(error), error, error.__traceback__)  # as the interpreter does
        os._exit(1)
    error = raised(forever(lambda: dist.all_reduce(torch.ones(3))))
    assert isinstance(error, headrace.Cancelled) and isinstance(error, dist.DistBackendError)
    assert "rank 1" in str(error) and "ValueError: no such column: price" in str(error), error


@case
def leaving_early(rank: int, size: int) -> None:
    if rank == 1:
        dist.destroy_process_group()
        os._exit(0)
    error = raised(forever(lambda: dist.barrier()))
    assert "rank 1" in str(error), error


@case
def late_rank(rank: int, size: int) -> None:
    """A group's own limit, and one set later."""
    quick = dist.new_group(timeout=timedelta(seconds=1))
    other = dist.new_group()
    other.set_timeout(timedelta(seconds=1))
    for group in (quick, other):
        if rank != 1:
            error = raised(lambda group=group: dist.all_reduce(torch.ones(3), group=group))
            assert isinstance(error, headrace.Timeout) and isinstance(error, dist.DistBackendError)
            assert "rank 1" in str(error), error
    dist.barrier()  # groups beside it go on
    if rank == 1:
        # The others' contributions were there, so its own operation may have ended well.
        error = raised(forever(lambda: dist.all_reduce(torch.ones(3), group=quick)))
        assert isinstance(error, headrace.Timeout), error


@case
def monitored_barrier_names_who_is_missing(rank: int, size: int) -> None:
    group = dist.new_group()
    headrace_torch.monitored_barrier()
    headrace_torch.monitored_barrier(group, timeout=timedelta(seconds=30), wait_all_ranks=True)
    if rank == 0:
        error = raised(lambda: headrace_torch.monitored_barrier(group, timeout=1.0))
        assert isinstance(error, headrace.Timeout), error
        assert "rank 1" in str(error) or "ranks 1" in str(error), error
    headrace_torch.monitored_barrier()
    gloo = dist.new_group(backend="gloo")
    assert isinstance(raised(lambda: headrace_torch.monitored_barrier(gloo)), ValueError)


@case
def different_calls_and_a_new_group(rank: int, size: int) -> None:
    error = raised(lambda: dist.all_reduce(torch.ones(10 + (rank == 1))))
    assert isinstance(error, headrace.Mismatch) and isinstance(error, dist.DistBackendError)
    assert "float32[10]" in str(error) and "float32[11]" in str(error), error
    error = raised(lambda: dist.barrier())
    assert isinstance(error, headrace.Mismatch), "a failed group stays failed"
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert work.is_completed() and not work.is_success()
    assert isinstance(work.exception(), headrace.Mismatch)
    raised(lambda: work.get_future().wait())
    dist.destroy_process_group()
    store = Path(os.environ["CASE_FOLDER"], "again.store")
    dist.init_process_group("headrace", init_method=f"file://{store}", rank=rank, world_size=size)
    one = torch.ones(3)
    dist.all_reduce(one)
    assert one.eq(size).all()


@case
def aborted(rank: int, size: int) -> None:
    if rank == 1:
        time.sleep(0.2)
        dist.group.WORLD.abort()
        return
    error = raised(forever(lambda: dist.barrier()))
    assert isinstance(error, headrace.Cancelled) and "rank 1" in str(error), error


@case
def init_without_a_rank(rank: int, size: int) -> None:
    dist.destroy_process_group()
    if rank == 1:
        return
    store = Path(os.environ["CASE_FOLDER"], "missing.store")
    error = raised(
        lambda: dist.init_process_group(
            "headrace",
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=2),
        )
    )
    assert isinstance(error, headrace.Timeout) and isinstance(error, dist.DistBackendError)
    assert rank != 0 or "1 of 3 ranks did not come within 2 s: 1" in str(error), error


def held() -> tuple[int, int, int]:
    """Descriptors, threads and mapped shared memory of this process."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return (
        len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), maps.count("memfd:"),
    )  # fmt: skip


@case
def hundred_cycles(rank: int, size: int) -> None:
    dist.destroy_process_group()
    meet = dist.FileStore(str(Path(os.environ["CASE_FOLDER"], "cycles.store")), size)
    store = (
        dist.TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
        if rank == 0
        else None
    )
    if store is not None:
        meet.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(meet.get("port")), size, is_master=False)

    def cycle(number: int) -> None:
        dist.init_process_group(
            "headrace", store=dist.PrefixStore(str(number), store), rank=rank, world_size=size
        )
        model = DistributedDataParallel(nn.Linear(3, 3))
        model(torch.ones(2, 3)).sum().backward()
        dist.all_reduce(torch.ones(100_000), group=dist.new_group())
        dist.all_reduce(torch.ones(100_000), async_op=True)  # nobody waits for it
        dist.destroy_process_group()

    for number in range(20):
        cycle(number)
    before = held()
    for number in range(20, 120):
        cycle(number)
    end = time.monotonic() + 10.0
    while any(now > then for now, then in zip(held(), before, strict=True)):
        assert time.monotonic() < end, (before, held())  # what has been closed may linger
        time.sleep(0.1)


@case
def dropped_works(rank: int, size: int) -> None:
    """The tensors of a work that nobody holds live until it is done, and get its result."""
    kept = torch.zeros(50, 40).t()
    for number in range(200):
        dist.all_reduce(torch.full((1000 + number,), float(rank)), async_op=True)
        dist.all_reduce(torch.full((7,), 3.0), async_op=True)
        torch.full((1000 + number,), -1.0)  # would be written over, were that memory free
        if number == 100:
            kept += rank + 1.0
            dist.all_reduce(kept, async_op=True)
    dist.barrier()
    end = time.monotonic() + 30
    while not kept.eq(size * (size + 1) / 2).all():
        assert time.monotonic() < end
        time.sleep(0.001)


class Loaded(torch.utils.data.Dataset):
    """Samples whose making tries a collective, which a worker must not."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        worker = torch.utils.data.get_worker_info()
        assert worker is not None and worker.num_workers == 4
        try:
            dist.all_reduce(torch.ones(1))
        except headrace.InvalidArgument as error:
            assert "forked" in str(error)
            return torch.full((10,), index / 64)
        raise AssertionError("a forked worker took part in a collective")


@case
def forked_loaders(rank: int, size: int) -> list[float]:
    model = DistributedDataParallel(nn.Linear(10, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    sampler = torch.utils.data.DistributedSampler(Loaded(), shuffle=False)
    loader = torch.utils.data.DataLoader(
        Loaded(), batch_size=4, sampler=sampler, num_workers=4, multiprocessing_context="fork"
    )
    losses = []
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            pending = dist.all_reduce(torch.ones(10_000), async_op=True)
            loss = (model(batch) - 1).square().mean()
            loss.backward()
            optimizer.step()
            pending.wait()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    return losses
