# SPDX-License-Identifier: Apache-2.0
"""Cases of test_torch_stack.py: FSDP, DTensor, tensor parallelism, checkpoints, compiled collectives."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what cases need later is loaded once, before the ranks are forked
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)

CASES: dict[str, Callable[[int, int], Any]] = {}


def case(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    CASES[function.__name__] = function
    return function


def network() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 51), nn.ReLU(), nn.Linear(51, 30), nn.ReLU(), nn.Linear(30, 3))


def batch_of(rank: int) -> torch.Tensor:
    return torch.randn(8, 20, generator=torch.Generator().manual_seed(100 + rank))


def train(model: nn.Module, batch: torch.Tensor, optimizer: Any, steps: int = 4) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def train_alone(size: int) -> nn.Module:
    """One process with the batches of all ranks."""
    single = network()
    everything = torch.cat([batch_of(r) for r in range(size)])
    train(single, everything, torch.optim.Adam(single.parameters(), lr=0.01))
    return single


def close(ours: dict[str, Any], wanted: nn.Module) -> None:
    """One process adds in another order: equal within rounding."""
    for name, tensor in wanted.state_dict().items():
        assert torch.allclose(ours[name], tensor, rtol=0, atol=2e-6), name


def folder() -> Path:
    return Path(os.environ["CASE_FOLDER"])


def sharded_network() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


@case
def fsdp2(rank: int, size: int) -> None:
    """Layers of 51 and 3 rows do not divide by the ranks, which is allowed."""
    model, optimizer = sharded_network()
    train(model, batch_of(rank), optimizer)
    close({n: p.full_tensor() for n, p in model.state_dict().items()}, train_alone(size))


@case
def fsdp2_mixed_precision(rank: int, size: int) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    model = network()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mp_policy=policy, reshard_after_forward=False)
    train(model, batch_of(rank), torch.optim.SGD(model.parameters(), 0.1))
    single = network()
    everything = torch.cat([batch_of(r) for r in range(size)])
    train(single, everything, torch.optim.SGD(single.parameters(), 0.1))
    for name, tensor in model.state_dict().items():
        assert torch.allclose(tensor.full_tensor(), single.state_dict()[name], atol=2e-2), name


@case
def fsdp1(rank: int, size: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    train(model, batch_of(rank), torch.optim.Adam(model.parameters(), lr=0.01))
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        close(model.state_dict(), train_alone(size))


@case
def hybrid_sharding(rank: int, size: int) -> None:
    """Two replicas of two shards each."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(network(), mesh=mesh)
    train(model, batch_of(rank), torch.optim.Adam(model.parameters(), lr=0.01))
    close({n: p.full_tensor() for n, p in model.state_dict().items()}, train_alone(size))


@case
def dtensor(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(1)
    whole = torch.randn(2 * size + 1, 6)
    for placement in (Shard(0), Shard(1), Replicate()):
        spread = distribute_tensor(whole, mesh, [placement])
        assert torch.equal(spread.full_tensor(), whole), placement
        for other in (Shard(0), Shard(1), Replicate()):
            assert torch.equal(spread.redistribute(mesh, [other]).full_tensor(), whole), other
    parts = DTensor.from_local(torch.full((4, 6), rank + 1.0), mesh, [Partial()])
    for other in (Replicate(), Shard(0), Shard(1)):
        total = parts.redistribute(mesh, [other]).full_tensor()
        assert total.eq(size * (size + 1) / 2).all(), other
    mean = DTensor.from_local(torch.full((4, 6), rank + 1.0), mesh, [Partial("avg")])
    assert mean.full_tensor().eq((size + 1) / 2).all()
    right = distribute_tensor(torch.randn(6, 5), mesh, [Shard(0)])
    left = distribute_tensor(whole, mesh, [Shard(1)])
    product = left @ right
    assert product.placements == (Partial(),)
    wanted = whole @ right.full_tensor()
    assert torch.allclose(product.full_tensor(), wanted, atol=1e-5)
    assert torch.equal(torch.distributed.tensor.zeros(4, 4, device_mesh=mesh).full_tensor(), torch.zeros(4, 4))


@case
def dtensor_of_two_dimensions(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    assert mesh["rows"].get_group().size() == mesh["columns"].get_group().size() == 2
    whole = torch.arange(35.0).view(5, 7)
    places = (Shard(0), Shard(1), Replicate())
    for first in places:
        for second in places:
            spread = distribute_tensor(whole, mesh, [first, second])
            assert torch.equal(spread.full_tensor(), whole), (first, second)
            for other in places:
                moved = spread.redistribute(mesh, [other, first])
                assert torch.equal(moved.full_tensor(), whole), (first, second, other)
    here = torch.full((1,), float(rank))
    dist.all_reduce(here, group=mesh.get_group("columns"))
    assert here.item() == (1.0 if rank < 2 else 5.0)


def tensor_parallel(rank: int, mesh: Any) -> None:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module,
    )  # fmt: skip

    torch.manual_seed(5)
    single = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.LayerNorm(4))
    model = copy.deepcopy(single)
    parallelize_module(
        model,
        mesh,
        {
            "0": ColwiseParallel(),
            "2": RowwiseParallel(output_layouts=Shard(0)),
            "3": SequenceParallel(sequence_dim=0),
        },
    )
    inputs = torch.randn(6, 6)
    target = torch.randint(0, 4, (6,))
    for _ in range(2):
        ours, wanted = model(inputs), single(inputs)
        assert torch.allclose(ours.full_tensor(), wanted, atol=1e-5)
        ours.full_tensor().square().sum().backward()
        wanted.square().sum().backward()
    for one, other in zip(model.parameters(), single.parameters(), strict=True):
        assert torch.allclose(one.grad.full_tensor(), other.grad, atol=1e-4)
    head = parallelize_module(nn.Linear(6, 4), mesh, ColwiseParallel(use_local_output=False))
    with loss_parallel():
        loss = nn.functional.cross_entropy(head(inputs), target)
        loss.backward()
    logits = head(inputs).full_tensor()
    assert torch.allclose(loss.full_tensor(), nn.functional.cross_entropy(logits, target), atol=1e-6)


@case
def tensor_parallel_of_two(rank: int, size: int) -> None:
    tensor_parallel(rank, init_device_mesh("cpu", (size,)))


@case
def tensor_parallel_in_a_mesh(rank: int, size: int) -> None:
    tensor_parallel(rank, init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["tp"])


@case
def checkpoint(rank: int, size: int) -> None:
    """Saved sharded, loaded into fresh shards, and into one whole model; then on in the background."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict,
    )  # fmt: skip

    model, optimizer = sharded_network()
    train(model, batch_of(rank), optimizer, steps=2)
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states, "step": 2}, checkpoint_id=folder() / "saved")

    fresh, fresh_optimizer = sharded_network()
    weights, states = get_state_dict(fresh, fresh_optimizer)
    target = {"model": weights, "optimizer": states, "step": 0}
    dcp.load(target, checkpoint_id=folder() / "saved")
    set_state_dict(
        fresh, fresh_optimizer, model_state_dict=weights, optim_state_dict=target["optimizer"]
    )
    assert target["step"] == 2
    train(fresh, batch_of(rank), fresh_optimizer, steps=2)
    close({n: p.full_tensor() for n, p in fresh.state_dict().items()}, train_alone(size))

    whole = {"model": {n: torch.zeros_like(p) for n, p in network().state_dict().items()}}
    dcp.load(whole, checkpoint_id=folder() / "saved")
    saved = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    for name, tensor in saved.items():
        assert torch.equal(tensor, whole["model"][name]), name

    soon = dcp.async_save(
        {"model": get_model_state_dict(fresh)},
        checkpoint_id=folder() / "saved_later",
        process_group=dist.new_group(),
    )
    train(fresh, batch_of(rank), fresh_optimizer, steps=1)  # over the group, while that goes on
    soon.result()
    dcp.load(whole, checkpoint_id=folder() / "saved_later")
    close(whole["model"], train_alone(size))


@case
def functional_under_compile(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD

    def step(x: torch.Tensor) -> torch.Tensor:
        total = funcol.all_reduce(x * 2, "sum", group)
        rows = funcol.all_gather_tensor(total + rank, 0, group)
        part = funcol.reduce_scatter_tensor(rows, "sum", 0, group)
        swapped = funcol.all_to_all_single(part, None, None, group)
        told = funcol.broadcast(swapped, 0, group)
        pairs = funcol.all_reduce_coalesced([told, told + 1], "avg", group)
        return pairs[0] + pairs[1] + dist_in_graph(x)

    def dist_in_graph(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y

    x = torch.arange(4.0 * size).view(2 * size, 2) * (rank + 1)
    wanted = step(x)
    for backend in ("aot_eager", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(step, backend=backend, fullgraph=True)
        assert torch.equal(compiled(x), wanted), backend
        assert torch.equal(compiled(x), wanted), backend
    x.requires_grad_(True)
    funcol.all_reduce(x, "sum", group).sum()


@case
def ddp_under_compile(rank: int, size: int) -> None:
    model = nn.parallel.DistributedDataParallel(network())
    compiled = torch.compile(model, backend="aot_eager")
    train(compiled, batch_of(rank), torch.optim.Adam(model.parameters(), lr=0.01))
    close(model.module.state_dict(), train_alone(size))


@case
def autograd_of_collectives(rank: int, size: int) -> None:
    import torch.distributed.nn.functional as with_gradients

    x = torch.full((2, 3), rank + 1.0, requires_grad=True)
    total = with_gradients.all_reduce(x)
    total.mul(rank + 1.0).sum().backward()
    assert x.grad.eq(size * (size + 1) / 2).all()
    x.grad = None
    rows = torch.cat(with_gradients.all_gather(x))
    (rows * (rank + 1)).sum().backward()
    assert x.grad.eq(size * (size + 1) / 2).all()


@case
def groups_and_meshes(rank: int, size: int) -> None:
    """Subgroups with limits of their own, in several ways to make them."""
    from datetime import timedelta

    ours, every = dist.new_subgroups(group_size=2)
    assert len(every) == 2
    one = torch.ones(3)
    dist.all_reduce(one, group=ours)
    assert one.eq(2).all()
    if rank < 2:  # the others know nothing of it
        dist.barrier(dist.new_group([0, 1], use_local_synchronization=True))
    pair, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    told = torch.tensor([float(rank)])
    dist.broadcast(told, src=dist.get_global_rank(pair, 1), group=pair)
    assert told.item() == (3.0 if rank in (0, 3) else 2.0)
    few = dist.new_group([1, 3], timeout=timedelta(seconds=7), group_desc="few")
    if rank in (1, 3):
        assert few.group_desc == "few"
        gathered: list[Any] = [None, None]
        dist.all_gather_object(gathered, rank, group=few)
        assert gathered == [1, 3]
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    flat = mesh["a", "b"]._flatten("ab")
    assert flat.size() == 4
    for group, total in ((mesh.get_group("a"), 2), (mesh.get_group("b"), 2), (flat.get_group(), 4)):
        one = torch.ones(1)
        dist.all_reduce(one, group=group)
        assert one.item() == total
    dist.destroy_process_group(ours)
    dist.barrier()
