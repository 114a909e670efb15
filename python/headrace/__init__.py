# SPDX-License-Identifier: Apache-2.0
"""Deep learning on data-lake data.

Importing this package imports no framework; each one lives behind its own submodule. Collectives of
arrays are here too (`headrace.init()`, `headrace.allreduce(array)`); their modules are imported
when one of them is asked for.
"""

from importlib import import_module as _import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace._errors import (
    AlreadyExists,
    AuthFailed,
    Busy,
    Cancelled,
    ChildFailed,
    Corrupt,
    Error,
    InternalError,
    InvalidArgument,
    IoError,
    Mismatch,
    NotFound,
    OutOfMemory,
    OutOfSpace,
    PeerDead,
    Timeout,
    Unsupported,
)
from headrace._version import __version__

if TYPE_CHECKING:
    from headrace._arrays import (
        allgather,
        allgather_async,
        allreduce,
        allreduce_async,
        alltoall,
        alltoall_async,
        broadcast,
        broadcast_async,
        grouped_allreduce,
        reducescatter,
        reducescatter_async,
    )
    from headrace._collective import (
        allgather_object,
        barrier,
        broadcast_object,
        join,
        poll,
        synchronize,
    )
    from headrace._run import run
    from headrace.common.basics import (
        Adasum,
        Average,
        Max,
        Min,
        Product,
        Sum,
        cross_rank,
        cross_size,
        init,
        is_homogeneous,
        is_initialized,
        local_rank,
        local_size,
        rank,
        shutdown,
        size,
        start_timeline,
        stop_timeline,
    )
    from headrace.common.exceptions import HorovodInternalError
    from headrace.common.process_sets import (
        ProcessSet,
        add_process_set,
        global_process_set,
        process_sets_table,
        remove_process_set,
    )
    from headrace.metrics import flight_record

_LATER = {
    "headrace._arrays": (
        "allgather allgather_async allreduce allreduce_async alltoall alltoall_async broadcast "
        "broadcast_async grouped_allreduce reducescatter reducescatter_async"
    ),
    "headrace._collective": ("allgather_object barrier broadcast_object join poll synchronize"),
    "headrace._run": "run",
    "headrace.common.basics": (
        "Adasum Average Max Min Product Sum cross_rank cross_size init is_homogeneous "
        "is_initialized local_rank local_size rank shutdown size start_timeline stop_timeline"
    ),
    "headrace.common.exceptions": "HorovodInternalError",
    "headrace.common.process_sets": (
        "ProcessSet add_process_set global_process_set process_sets_table remove_process_set"
    ),
    "headrace.metrics": "flight_record",
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names.split()}

__all__ = [
    "Adasum",
    "AlreadyExists",
    "AuthFailed",
    "Average",
    "Busy",
    "Cancelled",
    "ChildFailed",
    "Corrupt",
    "Error",
    "HorovodInternalError",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "Max",
    "Min",
    "Mismatch",
    "NotFound",
    "OutOfMemory",
    "OutOfSpace",
    "PeerDead",
    "ProcessSet",
    "Product",
    "Sum",
    "Timeout",
    "Unsupported",
    "__version__",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "cmake_dir",
    "cross_rank",
    "cross_size",
    "flight_record",
    "global_process_set",
    "grouped_allreduce",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "poll",
    "process_sets_table",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "run",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


def cmake_dir() -> Path:
    """Folder in which CMake finds the wheel's headrace for C++ and C, for `-Dheadrace_DIR=`.

    Raises NotFound in a checkout, where `cmake --install build/release --prefix PREFIX` gives
    `PREFIX/lib/cmake/headrace`.
    """
    folder = Path(__file__).resolve().parent / "cmake"
    if not (folder / "headrace-config.cmake").exists():
        raise NotFound(
            f"{folder} is not there: this is no installed wheel; in a checkout run "
            "`cmake --install build/release --prefix PREFIX` and look in PREFIX/lib/cmake/headrace"
        )
    return folder


def __getattr__(name: str) -> Any:  # noqa: ANN401
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    found = getattr(_import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
