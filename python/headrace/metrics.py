# SPDX-License-Identifier: Apache-2.0
"""What this rank has counted, and what its process sets did last."""

from __future__ import annotations

import json
from typing import Any

from headrace import _named
from headrace._front import comm

__all__ = ["flight_record", "snapshot"]


def snapshot() -> dict[str, Any]:
    """Everything that this process has counted since its first `init`, by name.

    Times are in seconds. A histogram is a dict of count, sum, p50 and p95. Empty in a process that
    is no rank, or could not make its board, of which it has warned.

    >>> from headrace import metrics
    >>> metrics.snapshot()
    {}
    """
    if _named.is_initialized():
        _named.job().context.flush_metrics()
    values: dict[str, Any] = json.loads(comm.process_metrics())
    return values


def flight_record() -> list[dict[str, Any]]:
    """The last 1024 operations of each process set, for every world that this process is in.

    Each has its number, name, kind, bytes, state (queued, running, done, failed), how it went, the
    times of its submission, start and end in microseconds, and the rank that it waits for. Fast
    enough to be called at any time, on any thread, also while another one waits for an operation.

    >>> import headrace
    >>> headrace.flight_record()
    []
    """
    return [json.loads(text) for text in comm.flight_records()]
