# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collectives. All ranks of the set run backward; no incoming gradient changes."""

from __future__ import annotations

from typing import Any

import torch

from headrace._named import OP_NAMES, Adasum, Average, Sum
from headrace.common.process_sets import ProcessSet, scope_of
from headrace.torch import _async

Grads = tuple[Any, ...]


def _backward_name(name: str | None) -> str | None:
    return None if name is None else f"{name}.backward"


def _check_linear(op: int) -> None:
    if op not in (Average, Sum, Adasum):
        raise NotImplementedError(
            f"allreduce with op={OP_NAMES[op]} has no gradient here; detach() the tensor"
        )


class Allreduce(torch.autograd.Function):  # type: ignore[misc]
    """allreduce; its gradient is the same allreduce of the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        factors: tuple[float, float],
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.name, ctx.op = _backward_name(name), op
        ctx.factors, ctx.process_set = factors, process_set
        return _async._allreduce(tensor, name, op, factors, process_set, False).synchronize()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Grads:
        _check_linear(ctx.op)
        rest = (ctx.name, ctx.op, ctx.factors, ctx.process_set, False)
        handle = _async._allreduce(gradient, *rest)
        return handle.synchronize(), *[None] * 4


class GroupedAllreduce(torch.autograd.Function):  # type: ignore[misc]
    """grouped_allreduce; so is its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        factors: tuple[float, float],
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.name, ctx.op = _backward_name(name), op
        ctx.factors, ctx.process_set = factors, process_set
        start = _async.grouped_allreduce_call
        return tuple(start(tensors, name, op, factors, process_set, False).synchronize())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Grads:
        _check_linear(ctx.op)
        rest = (ctx.name, ctx.op, ctx.factors, ctx.process_set, False)
        handle = _async.grouped_allreduce_call(gradients, *rest)
        return *[None] * 4, *handle.synchronize()


def _own_rows(gradient: torch.Tensor, every: list[int], process_set: ProcessSet) -> torch.Tensor:
    rank = scope_of(process_set).rank
    return gradient.narrow(0, sum(every[:rank]), every[rank])


class GroupedAllgather(torch.autograd.Function):  # type: ignore[misc]
    """grouped_allgather; the gradients are averaged and cut into the ranks' rows."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        handle = _async.grouped_allgather_call(tensors, name, process_set, with_rows=True)
        results = handle.synchronize()
        ctx.name, ctx.process_set = _backward_name(name), process_set
        ctx.rows = [rows for _, rows in results]
        return tuple(tensor for tensor, _ in results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Grads:
        start = _async.grouped_allreduce_call
        handle = start(gradients, ctx.name, Average, (1.0, 1.0), ctx.process_set, False)
        averaged = zip(handle.synchronize(), ctx.rows, strict=True)
        return None, None, *(_own_rows(one, rows, ctx.process_set) for one, rows in averaged)


class Allgather(torch.autograd.Function):  # type: ignore[misc]
    """allgather; the gradient is averaged and cut into the ranks' rows."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        scope = scope_of(process_set)
        call = _async.allgather_call(tensor, scope.wire_name("allgather", name), with_rows=True)
        result, ctx.rows = _async.submit(scope, "allgather", call).synchronize()
        ctx.name, ctx.process_set = _backward_name(name), process_set
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Grads:
        handle = _async.allreduce_async(gradient, None, ctx.name, process_set=ctx.process_set)
        return _own_rows(handle.synchronize(), ctx.rows, ctx.process_set), None, None


class Broadcast(torch.autograd.Function):  # type: ignore[misc]
    """broadcast; the root gets the mean of the gradients, the others zeros."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root = scope_of(process_set).root(root_rank)
        ctx.name, ctx.process_set = _backward_name(name), process_set
        return _async.broadcast_async(tensor, root_rank, name, process_set).synchronize()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Grads:
        handle = _async.allreduce_async(gradient, None, ctx.name, process_set=ctx.process_set)
        mean = handle.synchronize()
        is_root = scope_of(ctx.process_set).rank == ctx.root
        return mean if is_root else torch.zeros_like(mean), None, None, None


class Alltoall(torch.autograd.Function):  # type: ignore[misc]
    """alltoall; the gradient goes the way back."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        handle = _async.alltoall_async(tensor, splits, name, process_set)
        result, received = handle.synchronize()
        ctx.name, ctx.process_set = _backward_name(name), process_set
        ctx.rows, ctx.received = tensor.size(0), received
        ctx.mark_non_differentiable(received)
        return result, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Grads:
        handle = _async.alltoall_async(gradient, ctx.received, ctx.name, ctx.process_set)
        back, _sent = handle.synchronize()
        if back.size(0) < ctx.rows:  # what was not sent
            unsent = back.new_zeros((ctx.rows - back.size(0), *back.shape[1:]))
            back = torch.cat([back, unsent])
        return back, None, None, None


class GroupedReducescatter(torch.autograd.Function):  # type: ignore[misc]
    """grouped_reducescatter; its gradients are gathered and scaled."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        factors: tuple[float, float],
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        handle = _async.grouped_reducescatter_async(tensors, name, op, process_set, *factors)
        ctx.scale = factors[0] * factors[1] * (scope_of(process_set).size if op == Sum else 1)
        ctx.name, ctx.process_set = _backward_name(name), process_set
        return tuple(handle.synchronize())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Grads:
        handle = _async.grouped_allgather_async(gradients, ctx.name, ctx.process_set)
        return *[None] * 4, *(every * ctx.scale for every in handle.synchronize())


class Reducescatter(torch.autograd.Function):  # type: ignore[misc]
    """reducescatter; its gradient is gathered and scaled."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        factors: tuple[float, float],
        process_set: ProcessSet,
    ) -> torch.Tensor:
        handle = _async.reducescatter_async(tensor, name, op, process_set, *factors)
        ctx.scale = factors[0] * factors[1] * (scope_of(process_set).size if op == Sum else 1)
        ctx.name, ctx.process_set = _backward_name(name), process_set
        return handle.synchronize()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Grads:
        handle = _async.allgather_async(gradient, ctx.name, ctx.process_set)
        return handle.synchronize() * ctx.scale, *[None] * 4
