# SPDX-License-Identifier: Apache-2.0
"""Collectives of tensors: those that wait, some of them differentiable, and those with a handle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from headrace._collective import barrier, chosen_op, join, poll, synchronize
from headrace._named import Handle
from headrace.common.basics import *  # noqa: F403  (scripts import everything from here)
from headrace.common.basics import Average
from headrace.common.exceptions import HorovodInternalError
from headrace.common.process_sets import ProcessSet, global_process_set
from headrace.torch import _autograd
from headrace.torch._async import (
    allgather_async,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    reducescatter_async,
    sparse_allreduce_async,
)
from headrace.torch._opaque import opaque
from headrace.torch._tensors import check
from headrace.torch.compression import Compression, Compressor

__all__ = [  # noqa: F405
    "Adasum",
    "Average",
    "Handle",
    "HorovodInternalError",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


@opaque
def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over the ranks; differentiable.

    Args:
        tensor: of the same shape and type on all ranks.
        average: old spelling of op=Average (True) and op=Sum (False).
        name: matches the call with those of the other ranks; None: the calls' order does.
        compression: what the tensor is made into before it is sent.
        op: Average (default), Sum, Adasum, Min, Max, Product.
        prescale_factor: multiplies the tensor before it is reduced.
        postscale_factor: multiplies the result.
        process_set: whose ranks take part.

    Raises:
        ValueError: an argument is wrong.
        HorovodInternalError: it failed, on all ranks.
    """
    check(tensor, "allreduce")
    factors = (prescale_factor, postscale_factor)
    compressed, ctx = compression.compress(tensor)
    reduced = _autograd.Allreduce.apply(
        compressed, name, chosen_op(average, op), factors, process_set
    )
    return compression.decompress(reduced, ctx)


@opaque
def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor over the ranks in place; arguments and errors are those of `allreduce`."""
    factors = (prescale_factor, postscale_factor)
    return allreduce_async_(
        tensor, None, name, chosen_op(average, op), *factors, process_set
    ).synchronize()


@opaque
def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce tensors as one unit: none runs before all are there on all ranks; differentiable."""
    for tensor in tensors:
        check(tensor, "grouped_allreduce")
    factors = (prescale_factor, postscale_factor)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = _autograd.GroupedAllreduce.apply(
        name, chosen_op(average, op), factors, process_set, *(one for one, _ in compressed)
    )
    pairs = zip(reduced, compressed, strict=True)
    return [compression.decompress(one, ctx) for one, (_, ctx) in pairs]


@opaque
def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce tensors as one unit, in place."""
    factors = (prescale_factor, postscale_factor)
    results: list[torch.Tensor] = grouped_allreduce_async_(
        tensors, None, name, chosen_op(average, op), *factors, process_set
    ).synchronize()
    return results


@opaque
def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Put the ranks' tensors one after the other along dimension 0; differentiable.

    The first dimension may differ between ranks, and may be 0.
    """
    check(tensor, "allgather")
    return _autograd.Allgather.apply(tensor, name, process_set)


@opaque
def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """`allgather` of tensors as one unit; differentiable."""
    for tensor in tensors:
        check(tensor, "grouped_allgather")
    return list(_autograd.GroupedAllgather.apply(name, process_set, *tensors))


@opaque
def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Give all ranks the tensor of a rank; differentiable.

    Args:
        tensor: of the same shape and type on all ranks.
        root_rank: a rank of the world, with other process sets too.
        name: matches the call with those of the other ranks.
        process_set: whose ranks take part.
    """
    check(tensor, "broadcast")
    return _autograd.Broadcast.apply(tensor, root_rank, name, process_set)


@opaque
def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Give all ranks the tensor of a rank, in place."""
    return broadcast_async_(tensor, root_rank, name, process_set).synchronize()


@opaque
def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send runs of rows to each rank; differentiable.

    Args:
        tensor: its first dimension is cut.
        splits: rows for each rank of the set, a list or a 1-D tensor; None: equal parts.
        name: matches the call with those of the other ranks.
        process_set: whose ranks take part.

    Returns:
        The rows received, in the order of the ranks; with `splits` a pair of them and of how many
        came from each rank.
    """
    check(tensor, "alltoall")
    result, received = _autograd.Alltoall.apply(tensor, splits, name, process_set)
    return result if splits is None else (result, received)


@opaque
def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce, and keep this rank's share of the rows; differentiable.

    A rank gets n // size rows, the first n % size ranks one more.
    """
    check(tensor, "reducescatter")
    factors = (prescale_factor, postscale_factor)
    compressed, ctx = compression.compress(tensor)
    reduced = _autograd.Reducescatter.apply(compressed, name, op, factors, process_set)
    return compression.decompress(reduced, ctx)


@opaque
def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """`reducescatter` of tensors as one unit; differentiable."""
    for tensor in tensors:
        check(tensor, "grouped_reducescatter")
    factors = (prescale_factor, postscale_factor)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = _autograd.GroupedReducescatter.apply(
        name, op, factors, process_set, *(one for one, _ in compressed)
    )
    pairs = zip(reduced, compressed, strict=True)
    return [compression.decompress(one, ctx) for one, (_, ctx) in pairs]
