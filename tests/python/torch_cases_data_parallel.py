# SPDX-License-Identifier: Apache-2.0
"""Cases of test_torch_stack.py: DDP, its hooks, ZeroRedundancyOptimizer, coalesced and object calls.

With two ranks a sum has one order only, so training over "headrace" gives the very bits of gloo.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # DDP wants it; loaded once, before the ranks are forked
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import headrace.torch as headrace_torch

CASES: dict[str, Callable[[int, int], Any]] = {}


def case(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    CASES[function.__name__] = function
    return function


def network() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 30), nn.ReLU(), nn.Linear(30, 3))


def train(model: nn.Module, batches: list[torch.Tensor], optimizer: Any = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def batches_of(rank: int, count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(8, 20, generator=generator) for _ in range(count)]


def same_bits(one: nn.Module, other: nn.Module, what: Any) -> None:
    for (name, ours), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs), (what, name, (ours - theirs).abs().max())


def pair(mode: dict[str, Any], gloo: Any) -> tuple[DistributedDataParallel, DistributedDataParallel]:
    model = network()
    ours = DistributedDataParallel(copy.deepcopy(model), **mode)
    return ours, DistributedDataParallel(model, process_group=gloo, **mode)


@case
def ddp_modes(rank: int, size: int) -> None:
    gloo = dist.new_group(backend="gloo")
    modes: list[dict[str, Any]] = [
        {}, {"gradient_as_bucket_view": True}, {"static_graph": True},
        {"find_unused_parameters": True}, {"bucket_cap_mb": 0.001}, {"broadcast_buffers": False},
    ]  # fmt: skip
    for mode in modes:
        ours, theirs = pair(mode, gloo)
        for model in (ours, theirs):
            train(model, batches_of(rank))
        same_bits(ours, theirs, mode)


@case
def ddp_accumulates_without_sync(rank: int, size: int) -> None:
    gloo = dist.new_group(backend="gloo")
    pairs = pair({}, gloo)
    for model in pairs:
        with model.no_sync():
            model(batches_of(rank)[0]).sum().backward()
        model(batches_of(rank)[1]).sum().backward()
    for ours, theirs in zip(pairs[0].parameters(), pairs[1].parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


@case
def ddp_join(rank: int, size: int) -> None:
    """Rank r has r more batches than rank 0."""
    gloo = dist.new_group(backend="gloo")
    for divide in (True, False):
        ours, theirs = pair({}, gloo)
        for model in (ours, theirs):
            with model.join(divide_by_initial_world_size=divide):
                train(model, batches_of(rank, 2 + 2 * rank))
        same_bits(ours, theirs, divide)
        everywhere = [torch.empty(3, 30) for _ in range(size)]
        dist.all_gather(everywhere, ours.module[4].weight.detach())
        assert all(torch.equal(one, everywhere[0]) for one in everywhere)
    ours, _ = pair({}, gloo)
    try:
        with ours.join(throw_on_early_termination=True):
            train(ours, batches_of(rank, 2 + 2 * rank))
        raise AssertionError("nobody was told that inputs had run out")
    except RuntimeError as error:
        assert "exhausted" in str(error), error


@case
def ddp_hooks(rank: int, size: int) -> None:
    gloo = dist.new_group(backend="gloo")
    hooks: list[tuple[Any, Any, float]] = [
        (default_hooks.allreduce_hook, default_hooks.allreduce_hook, 0.0),
        (default_hooks.fp16_compress_hook, default_hooks.fp16_compress_hook, 0.0),
        (
            default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
            default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
            0.0,
        ),
        # gloo has no such hook; it rounds at 8 bits of mantissa
        (headrace_torch.bf16_hook, default_hooks.allreduce_hook, 2e-2),
    ]
    for hook, wanted, tolerance in hooks:
        ours, theirs = pair({}, gloo)
        ours.register_comm_hook(None, hook)
        theirs.register_comm_hook(gloo, wanted)
        for model in (ours, theirs):
            train(model, batches_of(rank))
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=0, atol=tolerance), (hook, (one - other).abs().max())


@case
def ddp_bf16_hook_rounds_once(rank: int, size: int) -> None:
    """The gradient is the mean of what each rank rounded, itself rounded once."""
    model = nn.Linear(500, 1, bias=False)
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(None, headrace_torch.bf16_hook)
    inputs = [torch.randn(500, generator=torch.Generator().manual_seed(r)) for r in range(size)]
    parallel(inputs[rank]).sum().backward()
    rounded = torch.stack([one.bfloat16().float() for one in inputs])
    assert torch.equal(model.weight.grad[0], rounded.mean(0).bfloat16().float())
    assert model.weight.grad.dtype == torch.float32


@case
def ddp_powersgd(rank: int, size: int) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    gloo = dist.new_group(backend="gloo")
    ours, theirs = pair({}, gloo)
    for model, group in ((ours, None), (theirs, gloo)):
        state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(model, batches_of(rank, 6))
    same_bits(ours, theirs, "PowerSGD")


@case
def ddp_with_sparse_gradients(rank: int, size: int) -> None:
    gloo = dist.new_group(backend="gloo")
    torch.manual_seed(3)
    bag = nn.Sequential(nn.EmbeddingBag(40, 6, sparse=True), nn.Linear(6, 2))
    pairs = (
        DistributedDataParallel(copy.deepcopy(bag)),
        DistributedDataParallel(bag, process_group=gloo),
    )
    words = torch.randint(0, 40, (5, 4 + rank), generator=torch.Generator().manual_seed(rank))
    for model in pairs:
        train(model, [words, words], torch.optim.SGD(model.parameters(), 0.1))
    for ours, theirs in zip(pairs[0].parameters(), pairs[1].parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-7)


@case
def zero_redundancy_optimizer(rank: int, size: int) -> None:
    """Sharded over the ranks, the optimizer takes the steps of a whole one."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    models = [DistributedDataParallel(network()) for _ in range(2)]
    sharded = ZeroRedundancyOptimizer(
        models[0].parameters(), optimizer_class=torch.optim.Adam, lr=0.01
    )
    train(models[0], batches_of(rank), sharded)
    train(models[1], batches_of(rank), torch.optim.Adam(models[1].parameters(), lr=0.01))
    same_bits(models[0], models[1], "ZeRO")
    sharded.consolidate_state_dict(to=0)
    if rank == 0:
        assert len(sharded.state_dict()["state"]) == 6
    overlapped = DistributedDataParallel(network())
    views = ZeroRedundancyOptimizer(
        overlapped.parameters(),
        optimizer_class=torch.optim.Adam,
        parameters_as_bucket_view=True,
        lr=0.01,
    )
    train(overlapped, batches_of(rank), views)
    same_bits(overlapped, models[1], "ZeRO with views")


@case
def post_local_sgd(rank: int, size: int) -> None:
    from torch.distributed.algorithms.model_averaging import averagers

    model = network()
    train(model, batches_of(rank))
    average = [torch.zeros_like(p) for p in model.parameters()]
    for r in range(size):
        other = network()
        train(other, batches_of(r))
        for total, p in zip(average, other.parameters(), strict=True):
            total += p.detach() / size
    averagers.PeriodicModelAverager(period=1).average_parameters(model.parameters())
    for ours, wanted in zip(model.parameters(), average, strict=True):
        assert torch.allclose(ours, wanted, atol=1e-6)


@case
def coalesced(rank: int, size: int) -> None:
    manager = functools.partial(dist.distributed_c10d._coalescing_manager)
    total = size * (size + 1) / 2
    for device in (None, torch.device("cpu")):
        for late in (False, True):
            ones = [torch.full((n,), rank + 1.0) for n in (1, 0, 1000, 100_000)]
            with manager(device=device, async_ops=late) as works:
                for one in ones:
                    dist.all_reduce(one)
            if late:
                works.wait()
            assert all(one.eq(total).all() for one in ones), (device, late)
            outs = [torch.empty(size * n) for n in (3, 50_000)]
            with manager(device=device, async_ops=late) as works:
                for out in outs:
                    dist.all_gather_into_tensor(out, torch.full((out.numel() // size,), float(rank)))
            if late:
                works.wait()
            for out in outs:
                assert out.view(size, -1).eq(torch.arange(float(size))[:, None]).all()
            parts = [torch.empty(n) for n in (3, 50_000)]
            with manager(device=device, async_ops=late) as works:
                for part in parts:
                    dist.reduce_scatter_tensor(part, torch.full((part.numel() * size,), rank + 1.0))
            if late:
                works.wait()
            assert all(part.eq(total).all() for part in parts)
    pair_of = [torch.ones(3), torch.full((2, 2), float(rank))]
    dist.all_reduce_coalesced(pair_of)
    assert pair_of[0].eq(size).all() and pair_of[1].eq(size * (size - 1) / 2).all()


@case
def objects(rank: int, size: int) -> None:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank * 1000})
    assert gathered == [{"rank": r, "text": "x" * r * 1000} for r in range(size)]
    at_last: list[Any] | None = [None] * size if rank == size - 1 else None
    dist.gather_object(("of", rank), at_last, dst=size - 1)
    assert at_last is None or at_last == [("of", r) for r in range(size)]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [{"for": r} for r in range(size)] if rank == 0 else None)
    assert mine == [{"for": rank}]
    told = [1, {"a": torch.arange(3)}, None] if rank == 0 else [None] * 3
    dist.broadcast_object_list(told)
    assert told[0] == 1 and told[1]["a"].tolist() == [0, 1, 2] and told[2] is None


@case
def methods_of_the_group(rank: int, size: int) -> None:
    """Called as frameworks call them: without options, with an operation, with a root."""
    group = dist.group.WORLD
    one = torch.full((3,), float(rank + 1))
    group.allreduce(one.clone(), dist.ReduceOp.SUM).wait()
    group.allreduce([one], dist.ReduceOp.MAX).wait()
    assert one.eq(size).all()
    told = torch.full((2,), float(rank))
    group.broadcast(told, 1).wait()
    assert told.eq(1).all()
    every = [torch.empty(2) for _ in range(size)]
    group.allgather(every, torch.full((2,), float(rank))).wait()
    assert [int(t[0]) for t in every] == list(range(size))
    part = torch.empty(2)
    group.reduce_scatter(part, [torch.full((2,), float(r)) for r in range(size)]).wait()
    assert part.eq(rank * size).all()
    group.reduce(one, 0, dist.ReduceOp.MIN).wait()
    assert one.eq(size).all()
    gathered = [torch.empty(3) for _ in range(size)] if rank == 0 else []
    group.gather(gathered, one, 0).wait()
    assert all(t.eq(size).all() for t in gathered)
    mine = torch.empty(1)
    group.scatter(mine, [torch.tensor([float(r)]) for r in range(size)] if rank == 0 else [], 0).wait()
    assert mine.item() == rank
    swapped = torch.empty(size)
    group.alltoall_base(swapped, torch.arange(float(size)), [], []).wait()
    assert swapped.eq(rank).all()
    group.barrier().wait()
    lists = [[torch.empty(2) for _ in range(size)] for _ in range(2)]
    group.allgather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((2,), 9.0)]).wait()
    assert [int(t[0]) for t in lists[0]] == list(range(size)) and lists[1][-1].eq(9).all()
