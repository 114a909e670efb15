# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed keeps for its own backends, for a group over "headrace"."""

# No annotations as text here: DDP compares those of a hook with its types.
from datetime import timedelta
from typing import Any

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from headrace._errors import InvalidArgument


def _group(group: Any) -> Any:
    from headrace.torch._process_group import HeadraceProcessGroup

    given = dist.group.WORLD if group is None else group
    if not isinstance(given, HeadraceProcessGroup):
        raise InvalidArgument(
            "headrace: a group over the backend headrace is needed: "
            'torch.distributed.init_process_group("headrace") or new_group(backend="headrace")'
        )
    return given


def monitored_barrier(
    group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait for all ranks of `group`; who does not come in time is named, on all ranks.

    Arguments: `timeout` in seconds or as a timedelta (default: the group's). `wait_all_ranks` is
    taken as torch takes it, but all missing ranks are named in any case.

    Errors: `headrace.Timeout` with the missing ranks and what they do; the group is of no use
    after that. `headrace.PeerDead` when a rank has died.

        headrace.torch.monitored_barrier(timeout=30.0)
    """
    del wait_all_ranks
    if group is not None and group == dist.GroupMember.NON_GROUP_MEMBER:
        return
    options = c10d.BarrierOptions()
    if timeout is not None:
        options.timeout = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    _group(group).barrier(options).wait()


def bf16_hook(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook of DDP that sends gradients as bfloat16: half the bytes.

    The sum of the ranks is taken in float32 and rounded once. Arguments: `group` as
    `DistributedDataParallel.register_comm_hook` hands it on (None: the default group).

        model.register_comm_hook(None, headrace.torch.bf16_hook)
    """
    given = dist.group.WORLD if group is None else group
    gradients = bucket.buffer()
    narrow = gradients.to(torch.bfloat16)
    options = c10d.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.AVG if gradients.is_floating_point() else dist.ReduceOp.SUM

    def widen(sent: torch.futures.Future[Any]) -> torch.Tensor:
        gradients.copy_(sent.value()[0])
        return gradients

    return given.allreduce([narrow], options).get_future().then(widen)
