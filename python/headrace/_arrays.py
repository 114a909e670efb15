# SPDX-License-Identifier: Apache-2.0
"""Collectives of arrays: numpy's, and those of any framework that speaks DLPack."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace._collective import (
    checked_splits,
    chosen_op,
    equal_splits,
    member_names,
    native_op,
    reduction_kind,
)
from headrace._named import Adasum, Average, Handle, Scope, Sum
from headrace.common.process_sets import ProcessSet, global_process_set, scope_of

if TYPE_CHECKING:
    from headrace._native.comm import NamedWork

Back = Callable[[Any], Any]
Member = tuple[Any, ...]

_DTYPES = frozenset(
    [
        "uint8",
        "int8",
        "uint16",
        "int16",
        "uint32",
        "int32",
        "uint64",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "bool",
    ]
)
_COMPLEX = {"complex64": "float32", "complex128": "float64"}


class _Array(NamedTuple):
    """An array as the engine takes it."""

    numbers: Any
    """Contiguous, of a type of numpy with as many bytes."""
    dtype: str
    """What the engine is told that it is."""
    dimensions: int
    back: Back
    """What makes a result of the caller's kind from an array like `numbers`."""

    def member(self, wire: str, output: int, *rest: Any) -> Member:
        shape = list(self.numbers.shape) if self.dimensions > 0 else []
        return (wire, self.dtype, shape, self.numbers.ctypes.data, output, *rest)

    def allocated(self, work: NamedWork) -> Any:
        """What the engine made: rows like those of the input."""
        shape = (work.rows, *self.numbers.shape[1:])
        if 0 in shape:
            return np.empty(shape, self.numbers.dtype)
        output: Any = work.output
        return np.frombuffer(output, dtype=self.numbers.dtype).reshape(shape)


def _taken(value: Any, kind: str, op: int | None = None) -> _Array:
    """The value for the engine.

    Raises:
        ValueError: it is no array, or of a type that cannot be sent or reduced so.
    """
    array, back = _as_numpy(value, kind)
    dtype = str(array.dtype)
    if dtype == "bfloat16":  # of ml_dtypes
        kept = array.dtype
        made = back
        back = lambda result: made(result.view(kept))  # noqa: E731
        array = array.view(np.int16)
    elif dtype == "int16" and _is_torch_bfloat16(value):
        dtype = "bfloat16"
    dimensions = array.ndim
    if dtype in _COMPLEX:
        if op not in (None, Average, Sum):
            raise ValueError(f"headrace.{kind}: {dtype} can be summed and averaged only")
        kept, made, dtype = array.dtype, back, _COMPLEX[dtype]
        array = np.ascontiguousarray(array).reshape(array.shape)[..., np.newaxis].view(dtype)
        back = lambda result: made(result.view(kept)[..., 0])  # noqa: E731
    if dtype not in _DTYPES:
        raise ValueError(f"headrace.{kind}: arrays of type {dtype} are not supported")
    if op == Adasum and not dtype.startswith(("float", "bfloat")):
        raise ValueError(f"headrace.{kind}: Adasum of {dtype} is not supported")
    return _Array(np.ascontiguousarray(array).reshape(array.shape), dtype, dimensions, back)


def _as_numpy(value: Any, kind: str) -> tuple[Any, Back]:
    if isinstance(value, np.ndarray):
        return value, lambda result: result
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return np.asarray(value), lambda result: result[()]
    if isinstance(value, (list, tuple)):
        return np.asarray(value), lambda result: result
    if not hasattr(value, "__dlpack__"):
        raise ValueError(
            f"headrace.{kind}: an array of numpy or of something that speaks DLPack, "
            f"not {type(value).__name__}"
        )
    if _torch_of(value) is not None:
        return _of_torch(value)
    return _on_host(value), _maker(value)


# What exporters and numpy raise for a type or a device that the other side has not.
_NOT_BY_DLPACK = (BufferError, RuntimeError, TypeError, ValueError)


def _on_host(value: Any) -> Any:
    from_dlpack: Any = np.from_dlpack  # its `device` came with numpy 2.1
    for options in ({}, {"device": "cpu"}):
        try:
            return from_dlpack(value, **options)
        except _NOT_BY_DLPACK:
            continue
    return np.asarray(value)


def _torch_of(value: Any) -> Any:
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def _is_torch_bfloat16(value: Any) -> bool:
    torch = _torch_of(value)
    return torch is not None and value.dtype == torch.bfloat16


def _of_torch(tensor: Any) -> tuple[Any, Back]:
    torch = _torch_of(tensor)
    host, device = tensor.detach().cpu(), tensor.device
    if not _is_torch_bfloat16(tensor):
        return host.numpy(), lambda result: torch.from_numpy(result).to(device)
    bits = host.contiguous().view(torch.int16).numpy()  # numpy has no such type
    return bits, lambda result: torch.from_numpy(result).view(torch.bfloat16).to(device)


def _maker(value: Any) -> Back:
    """What makes an array of the framework that `value` comes from, else one of numpy."""
    namespace = getattr(value, "__array_namespace__", None)
    library = namespace() if namespace is not None else None
    from_dlpack = getattr(library, "from_dlpack", None)
    asarray = getattr(library, "asarray", None)

    def made(result: Any) -> Any:
        if from_dlpack is not None:
            with contextlib.suppress(*_NOT_BY_DLPACK):
                return from_dlpack(result)
        return result if asarray is None else asarray(result)

    return made


def _start(
    scope: Scope, kind: str, array: _Array, member: Member, finish: Callable[[NamedWork], Any]
) -> Handle:
    return Handle([scope.submit(kind, *member)], array, lambda works: finish(works[0]))


def allreduce_async(
    array: Any,
    op: int | None = None,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start `allreduce`; give the answer to `synchronize`."""
    op = chosen_op(None, op)
    scope = scope_of(process_set)
    taken = _taken(array, "allreduce", op)
    output = np.empty_like(taken.numbers)
    wire = scope.wire_name("allreduce", name)
    factors = (prescale_factor, postscale_factor)
    member = taken.member(wire, output.ctypes.data, native_op(op), *factors)
    kind = reduction_kind(op, scope)
    return _start(scope, kind, taken, member, lambda work: taken.back(output))


def allreduce(
    array: Any,
    op: int | None = None,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce an array over the ranks.

    Args:
        array: of numpy, of anything that speaks DLPack (the result is of the same framework), or a
            number; of the same shape and type on all ranks.
        op: Average (default), Sum, Adasum, Min, Max, Product.
        name: matches the call with those of the other ranks; None: the calls' order does.
        prescale_factor: multiplies the array before it is reduced.
        postscale_factor: multiplies the result.
        process_set: whose ranks take part.

    Raises:
        ValueError: an argument is wrong.
        HorovodInternalError: it failed, on all ranks.
    """
    return allreduce_async(
        array, op, name, prescale_factor, postscale_factor, process_set
    ).synchronize()


def grouped_allreduce(
    arrays: Sequence[Any],
    op: int | None = None,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduce arrays as one unit: none runs before all are there on all ranks."""
    op = chosen_op(None, op)
    scope = scope_of(process_set)
    taken = [_taken(array, "grouped_allreduce", op) for array in arrays]
    if not taken:
        raise ValueError("headrace.grouped_allreduce: the list of arrays is empty")
    outputs = [np.empty_like(one.numbers) for one in taken]
    base = scope.wire_name("allreduce", name)
    rest: Member = (native_op(op), prescale_factor, postscale_factor, 0, [])
    members = [
        one.member(wire, output.ctypes.data, *rest)
        for wire, one, output in zip(member_names(base, len(taken)), taken, outputs, strict=True)
    ]
    works = scope.submit_group(reduction_kind(op, scope), base, members)
    pairs = list(zip(taken, outputs, strict=True))
    handle = Handle(works, pairs, lambda _: [one.back(output) for one, output in pairs])
    results: list[Any] = handle.synchronize()
    return results


def allgather_async(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start `allgather`; give the answer to `synchronize`."""
    scope = scope_of(process_set)
    taken = _taken(array, "allgather")
    member = taken.member(scope.wire_name("allgather", name), 0)
    return _start(scope, "allgather", taken, member, lambda work: taken.back(taken.allocated(work)))


def allgather(
    array: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Put the ranks' arrays one after the other along their first dimension, which may differ."""
    return allgather_async(array, name, process_set).synchronize()


def broadcast_async(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start `broadcast`; give the answer to `synchronize`."""
    scope = scope_of(process_set)
    root = scope.root(root_rank)
    taken = _taken(array, "broadcast")
    output = taken.numbers.copy()
    wire = scope.wire_name("broadcast", name)
    shape, address = list(output.shape), output.ctypes.data
    member = (wire, taken.dtype, shape, address, address, None, 1.0, 1.0, root)
    return _start(scope, "broadcast", taken, member, lambda work: taken.back(output))


def broadcast(
    array: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give all ranks the array of the global rank `root_rank`."""
    return broadcast_async(array, root_rank, name, process_set).synchronize()


def alltoall_async(
    array: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start `alltoall`; `synchronize` gives the rows and how many came from each rank."""
    scope = scope_of(process_set)
    taken = _taken(array, "alltoall")
    rows = taken.numbers.shape[0] if taken.dimensions > 0 else 0
    if splits is None:
        parts = equal_splits(scope.size, rows)
    else:
        parts = checked_splits([int(part) for part in splits], scope.size, rows)
    if taken.dimensions > 0:
        taken = taken._replace(numbers=taken.numbers[: sum(parts)])
    member = taken.member(scope.wire_name("alltoall", name), 0, None, 1.0, 1.0, 0, parts)

    def finish(work: NamedWork) -> tuple[Any, Any]:
        counts = np.array(work.received_splits, dtype=np.int32)
        return taken.back(taken.allocated(work)), counts

    return _start(scope, "alltoall", taken, member, finish)


def alltoall(
    array: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send runs of rows to each rank.

    Args:
        array: its first dimension is cut.
        splits: rows for each rank of the set; None: equal parts.
        name: matches the call with those of the other ranks.
        process_set: whose ranks take part.

    Returns:
        The rows received, in the order of the ranks; with `splits` a pair of them and of how many
        came from each rank.
    """
    result = alltoall_async(array, splits, name, process_set).synchronize()
    return result[0] if splits is None else result


def reducescatter_async(
    array: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start `reducescatter`; give the answer to `synchronize`."""
    if op not in (Average, Sum):
        raise NotImplementedError("reducescatter only supports op=Average and op=Sum")
    scope = scope_of(process_set)
    taken = _taken(array, "reducescatter", op)
    wire = scope.wire_name("reducescatter", name)
    member = taken.member(wire, 0, native_op(op), prescale_factor, postscale_factor)
    return _start(
        scope, "reducescatter", taken, member, lambda work: taken.back(taken.allocated(work))
    )


def reducescatter(
    array: Any,
    op: int = Average,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce, and keep this rank's share of the rows: n // size, the first n % size one more."""
    return reducescatter_async(
        array, op, name, prescale_factor, postscale_factor, process_set
    ).synchronize()
