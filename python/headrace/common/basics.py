# SPDX-License-Identifier: Apache-2.0
"""Start, end and questions about the job: the part of hvd.* that no framework has a word in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from headrace import _named
from headrace._named import Adasum, Average, Max, Min, Product, Sum
from headrace.common.process_sets import ProcessSet, check_new, register

if TYPE_CHECKING:
    from headrace._native.comm import Place

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def init(
    comm: Sequence[int] | None = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
) -> None:
    """Meet the other ranks of the job; nothing where that is done already.

    Args:
        comm: global ranks that form the world (the others must not call), None for all.
        process_sets: sets to register, the same in the same order on all ranks. "dynamic" is
            accepted: sets may be added and removed at any time.

    Raises:
        ValueError: an argument is wrong.
        HorovodInternalError: the ranks did not meet, or have given different process sets.
    """
    if _named.is_initialized():
        return
    if comm is not None and not isinstance(comm, (list, tuple, range)):
        raise ValueError(
            f"init(comm={type(comm).__name__}): MPI is not used; give a list of global ranks"
        )
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'init(process_sets={process_sets!r}): a list, or "dynamic"')
        process_sets = None
    sets = [
        ProcessSet(one) if not isinstance(one, ProcessSet) else one for one in process_sets or ()
    ]
    check_new(sets)
    ranks = None if not comm else [int(rank) for rank in comm]
    job = _named.init(ranks, [one.ranks or [] for one in sets], check=_check_sets(sets))
    for number, one in enumerate(sets, start=1):
        if number in job.sets:
            register(one, number)


def _check_sets(sets: list[ProcessSet]) -> Any:
    return lambda world_size: check_new(sets, world_size)


def shutdown() -> None:
    """End the engine on all ranks; what is pending fails there with HorovodInternalError."""
    _named.shutdown()


def is_initialized() -> bool:
    """Whether `init` was called, and `shutdown` not since then."""
    return _named.is_initialized()


def size() -> int:
    """Number of ranks."""
    return _named.job().world.size


def rank() -> int:
    """Number of this process, from 0."""
    return _named.job().world.rank


def local_size() -> int:
    """Number of ranks on this host."""
    return _place().local_size


def local_rank() -> int:
    """Number of this process among those of its host."""
    return _place().local_rank


def cross_size() -> int:
    """Number of hosts that have a process with this local rank."""
    return _place().cross_size


def cross_rank() -> int:
    """Number of this host among those that have a process with this local rank."""
    return _place().cross_rank


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    return _place().is_homogeneous


def _place() -> Place:
    return _named.job().place


def mpi_threads_supported() -> NoReturn:
    """Raise: MPI is not used."""
    raise ValueError("Horovod MPI is not enabled; headrace has an engine of its own")


def mpi_built() -> bool:
    """False."""
    return False


def mpi_enabled() -> bool:
    """False."""
    return False


def gloo_built() -> bool:
    """True: headrace's own engine stands in the place of Gloo."""
    return True


def gloo_enabled() -> bool:
    """True: headrace's own engine stands in the place of Gloo."""
    return True


def nccl_built() -> int:
    """Version code of the NCCL library that is installed here, else 0."""
    import ctypes

    version = ctypes.c_int(0)
    try:
        library = ctypes.CDLL("libnccl.so.2")
        if library.ncclGetVersion(ctypes.byref(version)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return version.value


def cuda_built() -> bool:
    """Whether the driver library of CUDA can be opened here."""
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def rocm_built() -> bool:
    """False."""
    return False


def ddl_built() -> bool:
    """False."""
    return False


def ccl_built() -> bool:
    """False."""
    return False


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write what the engine does to a file, as Chrome's trace format has it.

    Args:
        file_path: rank 0 writes it; with `%r` in it, each rank one with its number there.
        mark_cycles: also record when ranks tell each other what is ready.
    """
    _named.job().start_timeline(file_path, mark_cycles)


def stop_timeline() -> None:
    """End the file of `start_timeline`."""
    _named.job().stop_timeline()
