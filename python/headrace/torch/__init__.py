# SPDX-License-Identifier: Apache-2.0
"""Collectives for PyTorch.

Importing this module registers the backend "headrace" with torch.distributed:

    import torch.distributed as dist
    import headrace.torch
    dist.init_process_group("headrace")
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "headrace.torch needs PyTorch, which is not installed here: pip install torch",
        name="torch",
    ) from error

from headrace.torch._extras import bf16_hook, monitored_barrier
from headrace.torch._process_group import HeadraceProcessGroup

__all__ = ["HeadraceProcessGroup", "bf16_hook", "monitored_barrier"]
