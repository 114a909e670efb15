# SPDX-License-Identifier: Apache-2.0
"""Collectives for PyTorch: Horovod's names, and a backend of torch.distributed.

    import headrace.torch as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

Importing this module also registers the backend "headrace" with torch.distributed:

    import torch.distributed as dist
    import headrace.torch
    dist.init_process_group("headrace")
"""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "headrace.torch needs PyTorch, which is not installed here: pip install torch",
        name="torch",
    ) from error

from headrace.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from headrace.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    process_sets_table,
    remove_process_set,
)
from headrace.common.util import (
    check_extension,
    extension_available,
    gpu_available,
    num_rank_is_power_2,
    split_list,
)
from headrace.torch import compression, functions, mpi_ops, optimizer, sync_batch_norm
from headrace.torch._extras import bf16_hook, monitored_barrier
from headrace.torch._process_group import HeadraceProcessGroup
from headrace.torch.compression import Compression, Compressor
from headrace.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from headrace.torch.mpi_ops import *  # noqa: F403
from headrace.torch.mpi_ops import __all__ as _collectives
from headrace.torch.optimizer import DistributedOptimizer
from headrace.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "HeadraceProcessGroup",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ProcessSet",
    "SyncBatchNorm",
    "add_process_set",
    "allgather_object",
    "bf16_hook",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_extension",
    "compression",
    "extension_available",
    "functions",
    "global_process_set",
    "gpu_available",
    "monitored_barrier",
    "mpi_ops",
    "num_rank_is_power_2",
    "optimizer",
    "process_sets_table",
    "remove_process_set",
    "split_list",
    "sync_batch_norm",
]
__all__ += [name for name in _collectives if name not in __all__]


def __getattr__(name: str) -> _ModuleType:
    if name == "elastic":  # imported when asked for: it raises until it is there
        return _import_module("headrace.torch.elastic")
    raise AttributeError(f"module 'headrace.torch' has no attribute {name!r}")
