# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer, optimizer states and SyncBatchNorm; see hvd_ranks.py."""

from __future__ import annotations

import copy
import gc
import os
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo  # which optimizers import: once here, not in every rank
import torch.nn.functional as functional

import headrace.torch as hvd
from hvd_basic_cases import Doubled, raised, resident_kib
from hvd_ranks import collect

torch.set_num_threads(1)
CASES, case = collect()

Optimizer = torch.optim.Optimizer
Make = Callable[[Any], Optimizer]


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.Linear(3, 1)
    )


def batch(rank: int, step: int, rows: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(rows, 6, generator=generator)
    return x, x.sum(1, keepdim=True)


def loss_of(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    x, y = batch(rank, step)
    return functional.mse_loss(model(x), y)


def sgd(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def alone(size: int, make: Make, steps: int = 4, factor: float = 1.0) -> torch.nn.Module:
    """What one process would come to with the batches of all ranks."""
    model = network()
    optimizer = make(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        (sum(loss_of(model, r, step) for r in range(size)) / size * factor).backward()
        optimizer.step()
    return model


def together(rank: int, make: Make, steps: int = 4, **options: Any) -> torch.nn.Module:
    model = network()
    optimizer = hvd.DistributedOptimizer(
        make(model.parameters()), model.named_parameters(), **options
    )
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    return model


def close(a: torch.nn.Module, b: torch.nn.Module, tolerance: float = 1e-5) -> None:
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=tolerance, atol=tolerance), (name, p - q)


def equal_on_all(model: torch.nn.Module) -> None:
    """The same bits on all ranks."""
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    every = hvd.allgather(flat.view(torch.int32).unsqueeze(0))
    assert all(torch.equal(one, every[0]) for one in every)


@case
def as_one_process(rank: int, size: int) -> None:
    hvd.init()
    expected = alone(size, sgd)
    model = network()
    parameters = list(model.parameters())
    for options in (
        {},
        {"groups": 2},
        {"groups": 100},
        {"groups": [[0, 1], [4, 5]]},
        {"gradient_predivide_factor": float(size + 1)},
        {"compression": Doubled},
    ):
        if isinstance(options.get("groups"), list):
            model = network()
            parameters = list(model.parameters())
            groups = [[parameters[i] for i in group] for group in options["groups"]]
            optimizer = hvd.DistributedOptimizer(
                sgd(model.parameters()), model.named_parameters(), groups=groups
            )
            for step in range(4):
                optimizer.zero_grad()
                loss_of(model, rank, step).backward()
                optimizer.step()
        else:
            model = together(rank, sgd, **options)
        close(model, expected)
        equal_on_all(model)
    close(together(rank, sgd, op=hvd.Sum), alone(size, sgd, factor=size))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        model = together(rank, sgd, compression=compression)
        close(model, expected, 0.05)
        equal_on_all(model)
    for make in (
        torch.optim.AdamW,
        torch.optim.Adam,
        torch.optim.Adagrad,
        lambda p: torch.optim.AdamW(p, foreach=True),
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1)),
    ):
        close(together(rank, make), alone(size, make))
    # With a closure, of SGD and of an optimizer that calls it several times.
    for make in (sgd, lambda p: torch.optim.LBFGS(p, lr=0.01, max_iter=3)):
        model, plain = network(), network()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        reference = make(plain.parameters())

        def closure(model: Any = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, rank, 0)
            loss.backward()
            return hvd.allreduce(loss.detach())

        def alone_closure(plain: Any = plain, reference: Any = reference) -> torch.Tensor:
            reference.zero_grad()
            loss = sum(loss_of(plain, r, 0) for r in range(size)) / size
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
            reference.step(alone_closure)
        close(model, plain, 1e-4)
    hvd.shutdown()


@case
def stays_what_it_was(rank: int, size: int) -> None:
    """Class, groups, schedulers, states and hooks of the optimizer that was wrapped."""
    hvd.init()
    model = network()
    plain = sgd(model.parameters())
    before = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    calls: list[str] = []
    plain.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    after = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    loss_of(model, rank, 0).backward()
    optimizer.step()
    assert calls == ["before", "after"]
    before.step()
    after.step()
    assert optimizer.param_groups[0]["lr"] == 0.01 * 0.25
    assert [optimizer._parameter_names[p] for p in model.parameters()] == [
        name for name, _ in model.named_parameters()
    ]
    state = copy.deepcopy(optimizer.state_dict())
    assert state["state"][0]["momentum_buffer"].shape == (8, 6)
    optimizer.zero_grad(set_to_none=False)
    assert model[0].weight.grad.eq(0).all()
    # What is under way ends when a state is loaded, and the passes count anew.
    loss_of(model, rank, 1).backward()
    optimizer.load_state_dict(state)
    assert type(optimizer).step.hooked is True
    calls.clear()
    optimizer.zero_grad()
    loss_of(model, rank, 1).backward()
    optimizer.step()
    assert calls == ["before", "after"]
    # Parameters that come later are reduced too.
    extra = torch.nn.Parameter(torch.zeros(3))
    optimizer.add_param_group({"params": [extra], "lr": 1.0, "momentum": 0.0})
    optimizer.zero_grad()
    (loss_of(model, rank, 2) + (extra * rank).sum()).backward()
    optimizer.step()
    assert torch.allclose(extra, torch.full((3,), -(size - 1) / 2))
    equal_on_all(model)
    # The optimizer goes with its last reference, and its hooks with it.
    alive = weakref.ref(optimizer)
    del optimizer, after
    gc.collect()
    assert alive() is None
    loss_of(model, rank, 3).backward()
    hvd.barrier()
    hvd.shutdown()


@case
def arguments(rank: int, size: int) -> None:
    hvd.init()
    model = network()
    named = list(model.named_parameters())

    def make(**options: Any) -> Any:
        options.setdefault("named_parameters", named)
        return hvd.DistributedOptimizer(sgd(model.parameters()), **options)

    raised(ValueError, lambda: make(named_parameters=model.parameters()), "tuples")
    raised(ValueError, lambda: make(named_parameters=[*named, named[0]]), "unique", named[0][0])
    raised(ValueError, lambda: make(named_parameters=named[1:]), "not named", "group 0 index 0")
    raised(ValueError, lambda: make(op=hvd.Max), "op is one of")
    raised(ValueError, lambda: make(op=hvd.Sum, gradient_predivide_factor=2.0), "predivide")
    raised(ValueError, lambda: make(backward_passes_per_step=0), "> 0")
    for wrong in (0, -1, "two", [named[0][1]]):
        raised(ValueError, lambda w=wrong: make(groups=w), "group")
    twice = [[named[0][1]], [named[0][1]]]
    raised(ValueError, lambda: make(groups=twice), "once")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(num_groups=2)
    assert any(issubclass(one.category, DeprecationWarning) for one in caught)
    unnamed = hvd.DistributedOptimizer(sgd(model.parameters()))
    assert unnamed._parameter_names[named[1][1]] == "allreduce.noname.0.1"
    loss_of(model, rank, 0).backward()
    unnamed.step()
    if size > 1:
        strange = hvd.ProcessSet(range(size))
        raised(ValueError, lambda: make(process_set=strange), "unknown process set")
        alone_set = hvd.add_process_set([0])
        raised(
            NotImplementedError, lambda: make(op=hvd.Adasum, process_set=alone_set), "non-global"
        )
        # On ranks that are not in the set it is a plain optimizer.
        fresh = network()
        local = hvd.DistributedOptimizer(
            sgd(fresh.parameters()), fresh.named_parameters(), process_set=alone_set
        )
        loss_of(fresh, rank, rank).backward()
        local.step()
        weights = hvd.allgather(fresh[0].weight.detach()[:1, :1])
        assert len(set(weights.flatten().tolist())) == size
    hvd.shutdown()


@case
def passes(rank: int, size: int) -> None:
    """Accumulation: sums over the passes, a rest at the end of an epoch, errors that say where."""
    hvd.init()
    model, plain = network(), network()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=3
    )
    reference = sgd(plain.parameters())
    for count in (3, 3, 1, 2, 3):
        optimizer.zero_grad()
        reference.zero_grad()
        for step in range(count):
            loss_of(model, rank, step).backward()
            (sum(loss_of(plain, r, step) for r in range(size)) / size).backward()
        optimizer.step()
        reference.step()
        close(model, plain)
    if size > 1:  # between two passes too
        optimizer.zero_grad()
        loss_of(model, rank, 0).backward()
        raised(AssertionError, optimizer.zero_grad, "called after loss.backward() but before")
        optimizer.step()
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    loss_of(model, rank, 0).backward()
    if size > 1:
        text = raised(
            AssertionError, lambda: loss_of(model, rank, 1).backward(), "backward_passes_per_step"
        )
        assert ".weight" in text or ".bias" in text
        raised(AssertionError, optimizer.zero_grad, "called after loss.backward() but before")
    optimizer.step()
    optimizer.zero_grad()
    hvd.shutdown()


@case
def unused(rank: int, size: int) -> None:
    """Each rank's graph has other parameters; what is unused is zero, not stuck."""
    hvd.init()
    for groups in (None, 2):
        branches = torch.nn.ModuleList([torch.nn.Linear(2, 1, bias=False) for _ in range(size + 1)])
        with torch.no_grad():
            for one in branches:
                one.weight.fill_(1.0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(branches.parameters(), lr=1.0),
            branches.named_parameters(),
            groups=groups,
        )
        for step in range(3):
            optimizer.zero_grad()
            branches[(rank + step) % size](torch.ones(1, 2)).sum().backward()
            optimizer.step()
            if size > 1:
                assert branches[size].weight.grad.tolist() == [[0.0, 0.0]]
        for one in branches[:size]:
            assert torch.allclose(one.weight, torch.full((1, 2), 1.0 - 3 / size), atol=1e-6)
    hvd.shutdown()


@case
def clipping(rank: int, size: int) -> None:
    hvd.init()
    model, plain = network(), network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    reference = sgd(plain.parameters())
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
        reference.zero_grad()
        (sum(loss_of(plain, r, step) for r in range(size)) / size).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        reference.step()
        close(model, plain)
    loss_of(model, rank, 0).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
        optimizer.step()
    told = [str(one.message) for one in caught if "skip_synchronize" in str(one.message)]
    assert len(told) == (1 if size > 1 else 0)
    hvd.shutdown()


@case
def scaler(rank: int, size: int) -> list[float]:
    """Accumulation, clipping, a GradScaler that skips steps, and an early end of the epoch."""
    hvd.init()
    model = network()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=2
    )
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    scales = []
    batches = 7
    for number in range(batches):
        loss = loss_of(model, rank, number)
        if number in (2, 3) and rank == size - 1:
            loss = loss * float("inf")  # on one rank alone
        grad_scaler.scale(loss).backward()
        if number % 2 == 1 or number == batches - 1:
            optimizer.synchronize()
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                grad_scaler.step(optimizer)
            grad_scaler.update()
            optimizer.zero_grad()
            scales.append(grad_scaler.get_scale())
            equal_on_all(model)
    assert scales == [1024.0, 512.0, 512.0, 512.0]
    assert all(p.isfinite().all() for p in model.parameters())
    hvd.shutdown()
    return scales


@case
def gan(rank: int, size: int) -> None:
    """Two optimizers whose parameters have the same names; one backward reaches both."""
    hvd.init()

    def build(seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return torch.nn.Linear(4, 4)

    def train(strict: bool, wrap: Callable[[Optimizer, Any], Any], ranks: list[int]) -> Any:
        generator, critic = build(1), build(2)
        of_generator = wrap(sgd(generator.parameters()), generator)
        of_critic = wrap(sgd(critic.parameters()), critic)
        for step in range(4):
            data = [torch.full((2, 4), 1.0 + r + step) for r in ranks]
            (of_critic.zero_grad if strict else critic.zero_grad)()
            losses = [critic(generator(one).detach()).square().mean() for one in data]
            (sum(losses) / len(losses)).backward()
            of_critic.step()
            (of_generator.zero_grad if strict else generator.zero_grad)()
            losses = [critic(generator(one)).square().mean() for one in data]
            (sum(losses) / len(losses)).backward()  # the critic's gradients come along
            of_generator.step()
            if strict:
                of_critic.synchronize()
        return generator, critic

    def wrap(optimizer: Optimizer, model: torch.nn.Module) -> Any:
        return hvd.DistributedOptimizer(optimizer, model.named_parameters())

    expected = train(True, lambda optimizer, _: _Plain(optimizer), list(range(size)))
    ours = train(True, wrap, [rank])
    for a, b in zip(ours, expected, strict=True):
        close(a, b)
    # Many scripts reset the modules only: gradients of the critic are thrown away on the way.
    os.environ["HEADRACE_STRICT_ZERO_GRAD"] = "0"
    ours = train(False, wrap, [rank])
    for a, b in zip(ours, expected, strict=True):
        close(a, b)
    hvd.shutdown()


class _Plain:
    """An optimizer with the one more method that `train` calls."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.zero_grad, self.step = optimizer.zero_grad, optimizer.step

    def synchronize(self) -> None: ...


@case
def embeddings(rank: int, size: int) -> None:
    """Sparse gradients, on some ranks alone and on all; as they are and as dense ones."""
    hvd.init()
    for as_dense in (False, True):
        for told in (False, True):
            table = torch.nn.Embedding(8, 2, sparse=True)
            model = torch.nn.ModuleDict({"table": table, "head": torch.nn.Linear(2, 1)})
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(1.0)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=1.0),
                model.named_parameters(),
                sparse_as_dense=as_dense,
                model=model if told else None,
            )
            expected = torch.ones(8, 2)
            for step in range(3):
                optimizer.zero_grad()
                active = [r for r in range(size) if (r + step) % 2 == 0 or step == 2]
                if rank in active:
                    loss = table(torch.tensor([rank, 5])).sum()
                else:
                    loss = model["head"](torch.ones(1, 2)).sum() * 0
                loss.backward()
                optimizer.step()
                for r in active:
                    expected[r] -= 1 / size
                    expected[5] -= 1 / size
                assert torch.allclose(table.weight, expected, atol=1e-6), (as_dense, told, step)
                if size > 1:
                    assert table.weight.grad.is_sparse
    hvd.shutdown()


def _adasum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    dot = float((a.double() * b.double()).sum())
    aa, bb = float((a.double() ** 2).sum()), float((b.double() ** 2).sum())
    return a * (1 - dot / (2 * aa)) + b * (1 - dot / (2 * bb)) if aa and bb else a + b


@case
def adasum(rank: int, size: int) -> None:
    """2 or 4 ranks. The deltas of plain SGD are -lr times the gradients: combined by hand."""
    hvd.init()

    def tree(parts: list[torch.Tensor]) -> torch.Tensor:
        while len(parts) > 1:  # distances 1, 2, ...
            parts = [_adasum(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
        return parts[0]

    every = [torch.tensor([1.0 + r, 2.0, -1.0 * r]) for r in range(size)]
    assert torch.allclose(hvd.allreduce(every[rank], op=hvd.Adasum), tree(every), atol=1e-6)

    model, plain = network(), network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum
    )
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        gradients = []
        for r in range(size):
            plain.zero_grad()
            loss_of(plain, r, step).backward()
            gradients.append([p.grad.clone() for p in plain.parameters()])
        with torch.no_grad():
            for p, *parts in zip(plain.parameters(), *gradients, strict=True):
                p.add_(tree([part * -0.1 for part in parts]))
        close(model, plain)
    if size > 1:
        optimizer.synchronize()
        raised(AssertionError, lambda: optimizer.skip_synchronize().__enter__(), "not supported")
        del optimizer  # and its hooks
        adam = hvd.DistributedOptimizer(
            torch.optim.Adam(model.parameters()), model.named_parameters(), op=hvd.Adasum,
            compression=hvd.Compression.fp16, backward_passes_per_step=2,
        )  # fmt: skip
        for step in range(4):
            loss_of(model, rank, step).backward()
            if step % 2:
                adam.step()
                adam.zero_grad()
        equal_on_all(model)
    hvd.shutdown()


def _optimizers() -> Iterator[tuple[str, Make]]:
    for name in sorted(
        torch.optim.__all__ if hasattr(torch.optim, "__all__") else dir(torch.optim)
    ):
        kind = getattr(torch.optim, name)
        if not isinstance(kind, type) or not issubclass(kind, Optimizer) or kind is Optimizer:
            continue
        if name not in ("SparseAdam", "Muon"):
            yield name, lambda p, kind=kind: kind(p, lr=0.01)
    yield (
        "Muon",
        lambda p: getattr(torch.optim, "Muon", torch.optim.SGD)(
            [one for one in p if one.dim() == 2], lr=0.01
        ),
    )
    yield "SGD with momentum", sgd
    yield "Adam amsgrad", lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, betas=(0.8, 0.9))
    yield "capturable-like lr", lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01))
    yield (
        "two groups",
        lambda p: torch.optim.SGD(
            [{"params": [one], "lr": 0.01 * (1 + i)} for i, one in enumerate(p)],
            momentum=0.5,
            weight_decay=0.1,
        ),
    )


def _walk(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _walk(one, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        yield place, type(value).__name__
        for index, one in enumerate(value):
            yield from _walk(one, f"{place}[{index}]")
    else:
        yield place, value


def _same(name: str, ours: Any, root: Any) -> None:
    mine, expected = list(_walk(ours)), list(_walk(root))
    assert [place for place, _ in mine] == [place for place, _ in expected], name
    for (place, a), (_, b) in zip(mine, expected, strict=True):
        assert type(a) is type(b), (name, place, a, b)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, (name, place, a, b)


@case
def states(rank: int, size: int) -> int:
    """Every optimizer of torch: fresh on some ranks, restored on others."""
    hvd.init()
    seen = 0
    for name, make in _optimizers():
        for stepped in ("root", "others", "all", "none"):
            root = size - 1
            model = network()
            optimizer = make(list(model.parameters()))
            is_root = rank == root
            if stepped == "all" or ((stepped == "root") == is_root and stepped != "none"):
                for step in range(2 + is_root):

                    def closure(
                        model: Any = model, optimizer: Any = optimizer, step: int = step
                    ) -> Any:
                        optimizer.zero_grad()
                        loss = loss_of(model, rank, step)
                        loss.backward()
                        return loss

                    optimizer.step(closure)
            if is_root:
                optimizer.param_groups[0]["weight_decay"] = 0.125
            weights = [p.detach().clone() for p in model.parameters()]
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            assert all(
                torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True)
            ), f"{name}: the parameters moved"
            state = optimizer.state_dict()
            _same(f"{name} {stepped}", state, hvd.broadcast_object(state, root))
            hvd.broadcast_parameters(model.state_dict(), root_rank=root)
            if not isinstance(optimizer, torch.optim.LBFGS):
                optimizer.zero_grad()
                loss_of(model, 0, 5).backward()
                optimizer.step()
            equal_on_all(model)
            seen += 1
    raised(ValueError, lambda: hvd.broadcast_optimizer_state(object(), 0), "torch.optim.Optimizer")
    other = torch.nn.Linear(2, 2 + rank)
    fewer = list(other.parameters())[: 1 + rank % 2]
    if size > 1:
        raised(
            ValueError, lambda: hvd.broadcast_optimizer_state(sgd(fewer), 0), "optimizers differ"
        )
    hvd.shutdown()
    return seen


@case
def batch_norm(rank: int, size: int) -> None:
    """As one process with the batches of all ranks, which differ in size; one may be empty."""
    hvd.init()
    for shape, plain_kind in (
        ((), torch.nn.BatchNorm1d),
        ((5,), torch.nn.BatchNorm1d),
        ((3, 2), torch.nn.BatchNorm2d),
        ((2, 2, 2), torch.nn.BatchNorm3d),
    ):
        for options in (
            {},
            {"momentum": None},
            {"affine": False},
            {"track_running_stats": False},
            {"momentum": 0.3, "eps": 1e-3},
        ):
            for rows in ([3 + r for r in range(size)], [0] + [4] * (size - 1)):
                if sum(rows) < 2:
                    continue
                plain = plain_kind(4, **options).double()
                model = hvd.SyncBatchNorm.convert_sync_batchnorm(
                    torch.nn.Sequential(copy.deepcopy(plain))
                )
                assert isinstance(model[0], hvd.SyncBatchNorm)
                torch.manual_seed(3)
                for _ in range(2):
                    whole = torch.randn((sum(rows), 4, *shape), dtype=torch.float64) * 3 + 7
                    weights = torch.randn_like(whole)
                    first = sum(rows[:rank])
                    reference = whole.clone().requires_grad_()
                    expected = plain(reference)
                    (expected * weights).sum().backward()
                    part = slice(first, first + rows[rank])
                    mine = whole[part].clone().requires_grad_()
                    result = model(mine)
                    (result * weights[part]).sum().backward()
                    assert torch.allclose(result, expected[part])
                    assert torch.allclose(mine.grad, reference.grad[part], atol=1e-9)
                if plain.affine:
                    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
                        assert torch.allclose(hvd.allreduce(p.grad, op=hvd.Sum), q.grad)
                if plain.track_running_stats:
                    assert torch.allclose(model[0].running_mean, plain.running_mean)
                    assert torch.allclose(model[0].running_var, plain.running_var)
                    model.eval()
                    plain.eval()
                    assert torch.allclose(model(whole), plain(whole))
    raised(ValueError, lambda: hvd.SyncBatchNorm(4)(torch.ones(3)), "dimensions")
    half = hvd.SyncBatchNorm(4)(torch.randn(6, 4).bfloat16())
    assert half.dtype == torch.bfloat16
    # Large means must not cost the variance its digits.
    layer = hvd.SyncBatchNorm(1)
    out = layer(torch.tensor([[10_000.0], [10_001.0], [10_002.0]]) + rank)
    every = torch.cat([torch.tensor([0.0, 1.0, 2.0]) + r for r in range(size)])
    expected = ((every - every.mean()) / (every.var(unbiased=False) + 1e-5).sqrt())[
        3 * rank : 3 * rank + 3
    ]
    assert torch.allclose(out.flatten(), expected, atol=1e-3)
    hvd.shutdown()


@case
def uneven(rank: int, size: int) -> int:
    """Rank r has r batches, the first none; the epoch ends with join, and metrics after it."""
    hvd.init()
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for epoch in range(3):
        seen = 0
        for step in range(rank * (epoch + 1) + epoch):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
            seen += 1
        last = hvd.join()
        assert last == size - 1
        total = hvd.allreduce(torch.tensor(float(seen)), op=hvd.Sum)
        assert total.item() == sum(r * (epoch + 1) + epoch for r in range(size))
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)
        equal_on_all(model)
    hvd.shutdown()
    return last


@case
def wrong_gradient(rank: int, size: int) -> str:
    """A gradient of another shape fails the step on all ranks, and the next step works."""
    hvd.init()
    extra = torch.nn.Parameter(torch.zeros(3 if rank == 0 else 4))
    model = network()
    optimizer = hvd.DistributedOptimizer(
        sgd([*model.parameters(), extra]), [*model.named_parameters(), ("extra", extra)]
    )
    (loss_of(model, rank, 0) + extra.sum()).backward()
    text = ""
    if size > 1:
        text = raised(hvd.HorovodInternalError, optimizer.step, "allreduce.extra", "shapes")
    optimizer.zero_grad()
    extra.requires_grad_(False)
    extra.data = torch.zeros(3)
    loss_of(model, rank, 0).backward()
    optimizer.step()
    equal_on_all(model)
    hvd.shutdown()
    return text


@case
def long_run(rank: int, size: int) -> None:
    """Memory stays flat over many steps, and models come and go."""
    hvd.init()
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())

    def steps(total: int) -> None:
        for step in range(total):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()

    steps(200)
    before = resident_kib()
    steps(1500)
    grown = resident_kib() - before
    assert grown < 4_000, grown
    equal_on_all(model)
    hvd.shutdown()


class Odd(torch.nn.Module):
    """Parameters of several types and layouts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        self.brief = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
        self.wide = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float64).t())
        self.wave = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
        self.fixed = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        self.scalar = torch.nn.Parameter(torch.tensor(2.0))
        self.empty = torch.nn.Parameter(torch.ones(0, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        picture = x.view(1, 3, 3, 3).contiguous(memory_format=torch.channels_last)
        value = self.conv(picture).square().mean() * self.scalar + self.empty.sum()
        value = (
            value + (self.wide * x[:2].double()).sum().float() + self.brief.float().square().sum()
        )
        return value + (self.wave * x[:2]).abs().square().sum() + self.fixed.sum()


@case
def odd_parameters(rank: int, size: int) -> None:
    hvd.init()
    data = [torch.linspace(r, r + 1, 27) for r in range(size)]
    for options in ({}, {"groups": 1}, {"compression": hvd.Compression.bf16}):
        model, plain = Odd(), Odd()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters(), **options
        )
        reference = torch.optim.SGD(plain.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            model(data[rank]).backward()
            optimizer.step()
            reference.zero_grad()
            (sum(plain(one) for one in data) / size).backward()
            reference.step()
        tolerance = 2e-2 if "compression" in options else 1e-5
        for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
            loose = 2e-2 if p.dtype == torch.bfloat16 else tolerance
            assert torch.allclose(p, q, rtol=loose, atol=loose), (options, name)
    hvd.shutdown()


@case
def in_sets(rank: int, size: int) -> None:
    """3 ranks: the first and the last train together, and the middle one alone beside them."""
    ends = hvd.ProcessSet([0, size - 1])
    hvd.init(process_sets=[ends])
    model = network()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), process_set=ends, groups=2
    )
    plain = network()
    reference = sgd(plain.parameters())
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        reference.zero_grad()
        ranks = [0, size - 1] if ends.included() else [rank]
        (sum(loss_of(plain, r, step) for r in ranks) / len(ranks)).backward()
        reference.step()
        close(model, plain)
    hvd.shutdown()


@case
def after_another_init(rank: int, size: int) -> None:
    """An optimizer outlives the engine: its names are told to the next one."""
    model = network()
    hvd.init()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for cycle in range(3):
        if cycle:
            hvd.init()
        optimizer.zero_grad()
        loss_of(model, rank, cycle).backward()
        optimizer.step()
        equal_on_all(model)
        hvd.barrier()
        hvd.shutdown()
    if size > 1:
        raised(RuntimeError, lambda: loss_of(model, rank, 0).backward(), "comm:")
