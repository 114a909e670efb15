# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the Horovod fronts."""

from __future__ import annotations

from typing import Any


class HorovodInternalError(RuntimeError):
    """A collective failed, on all ranks of its process set; `__cause__` is headrace's own error."""

    origin: dict[str, Any] | None = None
    """Where it happened first: rank, host, pid, exit; None when that is not known."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed; training goes on after a reset."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync
