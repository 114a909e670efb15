# SPDX-License-Identifier: Apache-2.0
"""What the fronts of all frameworks have alike: waiting, barriers, objects, reductions' names."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import _named
from headrace._errors import Error
from headrace._named import OPS, Adasum, Average, Handle, Scope, Sum
from headrace.common.process_sets import ProcessSet, global_process_set, scope_of
from headrace.common.util import num_rank_is_power_2

if TYPE_CHECKING:
    from headrace._native.comm import NamedWork


def chosen_op(average: bool | None, op: int | None) -> int:
    """The reduction, of the new and of the old spelling.

    Raises:
        ValueError: both are given, or there is no such reduction.
    """
    if average is not None:
        if op is not None:
            raise ValueError(
                "The op parameter supersedes average. Please provide only one of them."
            )
        warnings.warn(
            "Parameter `average` is deprecated; use op=hvd.Average or op=hvd.Sum.",
            DeprecationWarning,
            stacklevel=3,
        )
        return Average if average else Sum
    if op is None:
        return Average
    if op not in range(6):
        raise ValueError(f"op={op!r}: one of hvd.Average, Sum, Adasum, Min, Max, Product")
    return op


def reduction_kind(op: int, scope: Scope) -> str:
    """The engine's kind of operation for an allreduce.

    Raises:
        NotImplementedError: Adasum of a number of ranks that is no power of 2.
    """
    if op != Adasum:
        return "allreduce"
    if not num_rank_is_power_2(scope.size):
        raise NotImplementedError(
            f"Adasum needs a number of ranks that is a power of 2, and there are {scope.size}"
        )
    return "adasum"


def native_op(op: int) -> Any:
    """The engine's name of a reduction."""
    return OPS[Sum if op == Adasum else op]


def member_names(base: str, total: int) -> list[str]:
    """Names of the members of a group."""
    return [f"{base}_{i + 1}of{total}" for i in range(total)]


def checked_splits(splits: list[int], size: int, rows: int) -> list[int]:
    """Rows for each rank.

    Raises:
        ValueError: there are too few, too many, or negative ones, or not so many rows.
    """
    if len(splits) != size:
        raise ValueError(f"alltoall: {len(splits)} splits for the {size} ranks of the process set")
    if any(part < 0 for part in splits):
        raise ValueError(f"alltoall: a split is negative: {splits}")
    if sum(splits) > rows:
        raise ValueError(
            f"alltoall: the sum of the splits, {sum(splits)}, is greater than the first dimension, "
            f"{rows}"
        )
    return splits


def equal_splits(size: int, rows: int) -> list[int]:
    """Equal parts of the rows.

    Raises:
        ValueError: there are none.
    """
    if rows % size != 0:
        raise ValueError(
            f"alltoall: the first dimension, {rows}, is not divisible by the {size} ranks; "
            "give splits"
        )
    return [rows // size] * size


def poll(handle: Any) -> bool:
    """Whether `synchronize` of the handle would not block; never raises."""
    return not isinstance(handle, Handle) or handle.done()


def synchronize(handle: Any) -> Any:
    """Wait for an operation and give its result; None where the handle has none any more.

    Raises:
        HorovodInternalError: it failed, on all ranks.
    """
    return handle.synchronize() if isinstance(handle, Handle) else None


def _waited(start: Callable[[], NamedWork]) -> NamedWork:
    try:
        work = start()
        work.wait()
    except Error as error:
        raise _named.internal(error) from error
    return work


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when all ranks of the set have entered; what was submitted before goes on."""
    scope = scope_of(process_set)
    name = scope.wire_name("barrier", None)
    _waited(lambda: scope.named.barrier(name))


def join(device: int = -1) -> int:
    """Say that this rank has no more data, and wait until all ranks have said so.

    Until then the rank takes part in the allreduces of the others with zeros.

    Returns:
        The rank that joined last, the same on all ranks.
    """
    named = scope_of(global_process_set).named
    last = int(_waited(named.join).last_joined)
    _named.count_join()
    return last


def _dumps(thing: Any) -> bytes:
    try:  # which pickles lambdas and classes of __main__ too
        import cloudpickle
    except ImportError:
        return pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)
    return bytes(cloudpickle.dumps(thing))


def _broadcast_bytes(scope: Scope, root: int, wire: str, data: bytearray) -> None:
    address, keep = _named.address_of(data)
    arguments = (wire, "uint8", [len(data)], address, address, None, 1.0, 1.0, root)
    _waited(lambda: scope.named.submit("broadcast", *arguments))
    del keep


def _gather_bytes(scope: Scope, wire: str, data: bytes) -> list[bytes]:
    buffer = bytearray(data)
    address, keep = _named.address_of(buffer)
    arguments = (wire, "uint8", [len(buffer)], address, 0)
    work = _waited(lambda: scope.named.submit("allgather", *arguments))
    del keep
    output: Any = work.output
    every, parts, begin = memoryview(output), [], 0
    for count in work.received_splits:
        parts.append(bytes(every[begin : begin + count]))
        begin += count
    return parts


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give all ranks the object of the rank `root_rank`; the others may pass None.

    Objects are pickled: by cloudpickle where that is installed.
    """
    scope = scope_of(process_set)
    base = name if name is not None else f"broadcast_object.{scope.count('broadcast_object')}"
    root = scope.root(root_rank)
    data = bytearray(_dumps(obj) if root == scope.rank else b"")
    length = bytearray(len(data).to_bytes(8, "little"))
    _broadcast_bytes(scope, root, f"broadcast.{base}.size", length)
    if root != scope.rank:
        data = bytearray(int.from_bytes(length, "little"))
    _broadcast_bytes(scope, root, f"broadcast.{base}.bytes", data)
    return obj if root == scope.rank else pickle.loads(data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in their order."""
    scope = scope_of(process_set)
    base = name if name is not None else f"allgather_object.{scope.count('allgather_object')}"
    parts = _gather_bytes(scope, f"allgather.{base}", _dumps(obj))
    return [pickle.loads(part) for part in parts]
