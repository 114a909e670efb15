# SPDX-License-Identifier: Apache-2.0
"""Collectives of tensors that return a handle; those that wait stand on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from headrace._collective import (
    checked_splits,
    chosen_op,
    equal_splits,
    member_names,
    native_op,
    reduction_kind,
)
from headrace._named import OPS, Average, Handle, Scope, Sum
from headrace.common.process_sets import ProcessSet, global_process_set, scope_of
from headrace.torch import _tensors
from headrace.torch._opaque import opaque

if TYPE_CHECKING:
    from headrace._native.comm import NamedWork


Member = tuple[Any, ...]


class Call(NamedTuple):
    """One operation before it is submitted."""

    member: Member
    """name, dtype, shape, input, output, op, prescale, postscale, root, splits"""
    keep: Any
    """Tensors whose memory it reads and writes."""
    finish: Callable[[NamedWork], Any]
    """The result, once the work is done."""


def submit(scope: Scope, kind: str, call: Call) -> Handle:
    """Start one operation."""
    finish = call.finish
    work = scope.submit(kind, *call.member)
    return Handle([work], call.keep, lambda works: finish(works[0]))


def submit_group(scope: Scope, kind: str, group: str, calls: list[Call], as_tuple: bool) -> Handle:
    """Start operations of which none runs before all are ready on all ranks."""
    works = scope.submit_group(kind, group, [call.member for call in calls])

    def finish(done: list[NamedWork]) -> Any:
        results = [call.finish(work) for call, work in zip(calls, done, strict=True)]
        return tuple(results) if as_tuple else results

    return Handle(works, [call.keep for call in calls], finish)


def allreduce_call(
    tensor: torch.Tensor, wire: str, op: int, factors: tuple[float, float], in_place: bool
) -> Call:
    """A reduction of one tensor, into itself or into a new one."""
    _tensors.check(tensor, "allreduce")
    host = _tensors.staged(tensor.detach())
    numbers = _tensors.to_reduce(host, "allreduce", op)
    if in_place:
        source = target = _tensors.flat_memory(numbers, "allreduce_")
    else:
        source = numbers.contiguous()
        target = torch.empty_like(source)
    pointers = (source.data_ptr(), target.data_ptr())
    name = _tensors.dtype_name(numbers, "allreduce")
    member: Member = (wire, name, list(source.shape), *pointers, native_op(op), *factors, 0, [])

    def finish(work: NamedWork) -> torch.Tensor:
        if not in_place:
            return _tensors.from_move(target, host).to(tensor.device)
        if host.device != tensor.device:
            with torch.no_grad():
                tensor.copy_(host)
        return tensor

    return Call(member, (source, target), finish)


def _allreduce(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    in_place: bool,
) -> Handle:
    scope = scope_of(process_set)
    kind = reduction_kind(op, scope)
    wire = scope.wire_name("allreduce", name)
    return submit(scope, kind, allreduce_call(tensor, wire, op, factors, in_place))


@opaque
def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce a tensor over the ranks; the handle's result is a new tensor."""
    factors = (prescale_factor, postscale_factor)
    return _allreduce(tensor, name, chosen_op(average, op), factors, process_set, False)


@opaque
def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce a tensor over the ranks in place; the handle's result is the tensor."""
    factors = (prescale_factor, postscale_factor)
    return _allreduce(tensor, name, chosen_op(average, op), factors, process_set, True)


def _checked_group(tensors: Sequence[torch.Tensor], kind: str) -> list[torch.Tensor]:
    group = list(tensors)
    if not group:
        raise ValueError(f"{kind}: the list of tensors is empty")
    for tensor in group:
        _tensors.check(tensor, kind)
    if len({tensor.device.type for tensor in group}) > 1:
        raise ValueError(f"{kind}: the tensors of a group must be on one device")
    return group


def grouped_allreduce_call(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    in_place: bool,
) -> Handle:
    """Start to reduce tensors as one unit."""
    group = _checked_group(tensors, "grouped_allreduce")
    scope = scope_of(process_set)
    kind = reduction_kind(op, scope)
    base = scope.wire_name("allreduce", name)
    calls = [
        allreduce_call(tensor, wire, op, factors, in_place)
        for tensor, wire in zip(group, member_names(base, len(group)), strict=True)
    ]
    return submit_group(scope, kind, base, calls, as_tuple=False)


@opaque
def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce tensors, all or none; the handle's result is a list of new tensors."""
    factors = (prescale_factor, postscale_factor)
    op = chosen_op(average, op)
    return grouped_allreduce_call(tensors, name, op, factors, process_set, in_place=False)


@opaque
def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce tensors in place, all or none; the handle's result is their list."""
    factors = (prescale_factor, postscale_factor)
    op = chosen_op(average, op)
    return grouped_allreduce_call(tensors, name, op, factors, process_set, in_place=True)


@opaque
def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Start to add up sparse tensors; call the answer to wait for the sum, or for the mean.

    Raises:
        ValueError: the tensor is not sparse (COO), or another reduction is asked for.
    """
    if tensor.layout != torch.sparse_coo:
        raise ValueError(f"sparse_allreduce_async: a sparse COO tensor, not {tensor.layout}")
    if op not in (Average, Sum):
        raise ValueError("sparse_allreduce_async only supports Average and Sum")
    scope = scope_of(process_set)
    base = name if name is not None else f"sparse.noname.{scope.count('sparse')}"
    whole = tensor.detach().coalesce()
    # The device and the shape of the values are those of the tensor, the rows go first.
    indices = allgather_async(whole.indices().t(), f"{base}.indices", process_set)
    values = allgather_async(whole.values(), f"{base}.values", process_set)

    def wait() -> torch.Tensor:
        every_value = values.synchronize()
        every_index = indices.synchronize()
        if op == Average:
            every_value = every_value / scope.size
        return torch.sparse_coo_tensor(
            every_index.t(),
            every_value.to(tensor.dtype),
            tensor.shape,
            device=tensor.device,
            check_invariants=False,
        )

    return wait


def allgather_call(tensor: torch.Tensor, wire: str, with_rows: bool = False) -> Call:
    """Put the ranks' rows one after the other; `with_rows`: and say how many came from each."""
    _tensors.check(tensor, "allgather")
    host = _tensors.staged(tensor.detach())
    source = _tensors.to_move(host).contiguous()
    name = _tensors.dtype_name(source, "allgather")
    shape = list(source.shape) if host.dim() > 0 else []
    member: Member = (wire, name, shape, source.data_ptr(), 0, None, 1.0, 1.0, 0, [])

    def finish(work: NamedWork) -> Any:
        every = _tensors.allocated(work, source, source.shape[1:])
        result = _tensors.from_move(every, host).to(tensor.device)
        return (result, list(work.received_splits)) if with_rows else result

    return Call(member, source, finish)


@opaque
def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start to put the ranks' tensors one after the other along their first dimension."""
    scope = scope_of(process_set)
    wire = scope.wire_name("allgather", name)
    return submit(scope, "allgather", allgather_call(tensor, wire))


def grouped_allgather_call(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, with_rows: bool
) -> Handle:
    """Start to gather tensors as one unit."""
    group = _checked_group(tensors, "grouped_allgather")
    scope = scope_of(process_set)
    base = scope.wire_name("allgather", name)
    calls = [
        allgather_call(tensor, wire, with_rows)
        for tensor, wire in zip(group, member_names(base, len(group)), strict=True)
    ]
    return submit_group(scope, "allgather", base, calls, as_tuple=False)


@opaque
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to gather tensors, all or none; the handle's result is a list."""
    return grouped_allgather_call(tensors, name, process_set, with_rows=False)


def _broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
    in_place: bool,
) -> Handle:
    _tensors.check(tensor, "broadcast")
    scope = scope_of(process_set)
    root = scope.root(root_rank)
    host = _tensors.staged(tensor.detach())
    if in_place:
        flat = _tensors.flat_memory(host, "broadcast_")
    else:
        flat = host.clone(memory_format=torch.contiguous_format)
    moved = _tensors.to_move(flat)
    dtype = _tensors.dtype_name(moved, "broadcast")
    pointer = flat.data_ptr()
    if flat.dtype in _tensors.COMPLEX and flat.dim() == 0:
        moved = torch.view_as_real(flat)
    wire = scope.wire_name("broadcast", name)
    shape = list(moved.shape)
    member: Member = (wire, dtype, shape, pointer, pointer, None, 1.0, 1.0, root, [])

    def finish(work: NamedWork) -> torch.Tensor:
        if not in_place:
            return flat.to(tensor.device)
        if host.device != tensor.device:
            with torch.no_grad():
                tensor.copy_(host)
        return tensor

    return submit(scope, "broadcast", Call(member, flat, finish))


@opaque
def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to give all ranks the tensor of the global rank `root_rank`, as a new tensor."""
    return _broadcast(tensor, root_rank, name, process_set, in_place=False)


@opaque
def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to give all ranks the tensor of the global rank `root_rank`, in place."""
    return _broadcast(tensor, root_rank, name, process_set, in_place=True)


def _checked_splits(splits: Any, size: int, rows: int) -> list[int]:
    given = splits if isinstance(splits, torch.Tensor) else torch.as_tensor(splits)
    if given.numel() == 0 and not isinstance(splits, torch.Tensor):
        given = given.to(torch.int32)
    if given.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"alltoall expects splits of 32-bit integer elements, not {given.dtype}")
    if given.dim() != 1:
        raise ValueError(f"alltoall expects a 1-D splits tensor, not {given.dim()} dimensions")
    return checked_splits([int(part) for part in given.tolist()], size, rows)


@opaque
def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to send runs of rows to each rank; the result is (tensor, received splits).

    Args:
        tensor: its first dimension is cut.
        splits: rows for each rank of the set, as a list or a one-dimensional tensor; None: equal
            parts. Rows after the last part are not sent.
        name: matches the call with those of the other ranks.
        process_set: whose ranks take part.

    Raises:
        ValueError: the splits do not fit.
    """
    _tensors.check(tensor, "alltoall")
    scope = scope_of(process_set)
    host = _tensors.staged(tensor.detach())
    rows = host.size(0) if host.dim() > 0 else 0
    if splits is not None:
        parts = _checked_splits(splits, scope.size, rows)
    else:
        parts = equal_splits(scope.size, rows)
    source = _tensors.to_move(host).contiguous()
    if host.dim() > 0:
        source = source[: sum(parts)]
    dtype = _tensors.dtype_name(source, "alltoall")
    shape = list(source.shape) if host.dim() > 0 else []
    wire = scope.wire_name("alltoall", name)
    member: Member = (wire, dtype, shape, source.data_ptr(), 0, None, 1.0, 1.0, 0, parts)
    like = splits if isinstance(splits, torch.Tensor) else torch.empty(0, dtype=torch.int32)

    def finish(work: NamedWork) -> tuple[torch.Tensor, torch.Tensor]:
        every = _tensors.allocated(work, source, source.shape[1:])
        received = torch.tensor(list(work.received_splits), dtype=like.dtype, device=like.device)
        return _tensors.from_move(every, host).to(tensor.device), received

    return submit(scope, "alltoall", Call(member, source, finish))


def reducescatter_call(
    tensor: torch.Tensor, wire: str, op: int, factors: tuple[float, float]
) -> Call:
    """Reduce, and keep this rank's share of the rows."""
    _tensors.check(tensor, "reducescatter")
    if op not in (Average, Sum):
        raise NotImplementedError("reducescatter only supports op=hvd.Average and op=hvd.Sum")
    host = _tensors.staged(tensor.detach())
    source = _tensors.to_reduce(host, "reducescatter", op).contiguous()
    dtype = _tensors.dtype_name(source, "reducescatter")
    shape = list(source.shape) if host.dim() > 0 else []
    member: Member = (wire, dtype, shape, source.data_ptr(), 0, OPS[op], *factors, 0, [])

    def finish(work: NamedWork) -> torch.Tensor:
        mine = _tensors.allocated(work, source, source.shape[1:])
        return _tensors.from_move(mine, host).to(tensor.device)

    return Call(member, source, finish)


@opaque
def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start to reduce a tensor; each rank gets n // size rows, the first n % size one more."""
    scope = scope_of(process_set)
    wire = scope.wire_name("reducescatter", name)
    call = reducescatter_call(tensor, wire, op, (prescale_factor, postscale_factor))
    return submit(scope, "reducescatter", call)


@opaque
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start to reduce and scatter tensors, all or none; the handle's result is a list."""
    group = _checked_group(tensors, "grouped_reducescatter")
    scope = scope_of(process_set)
    base = scope.wire_name("reducescatter", name)
    calls = [
        reducescatter_call(tensor, wire, op, (prescale_factor, postscale_factor))
        for tensor, wire in zip(group, member_names(base, len(group)), strict=True)
    ]
    return submit_group(scope, "reducescatter", base, calls, as_tuple=False)
