# SPDX-License-Identifier: Apache-2.0
"""One exception per kind of failure; each is also the builtin that fits it."""

from __future__ import annotations

from typing import Any


class Error(RuntimeError):
    """A failure that headrace reports: what, where, with which values, and what to do next."""

    code: str = "internal"
    """Name of the kind of failure, as it stands in JSON output."""
    origin: dict[str, Any] | None = None
    """Where it happened first: rank, host, pid, exit; None when it happened in this call."""


class InvalidArgument(Error, ValueError):
    """The caller's input is wrong; correct it and call again."""

    code = "invalid_argument"


class NotFound(Error, FileNotFoundError):
    """The named thing is not there."""

    code = "not_found"


class AlreadyExists(Error, FileExistsError):
    """The name is taken by something else."""

    code = "already_exists"


class Mismatch(Error, ValueError):
    """Two things that must agree do not: schema, content, version."""

    code = "mismatch"


class Corrupt(Error, ValueError):
    """Bytes that were read are not what their format says."""

    code = "corrupt"


class IoError(Error, OSError):
    """The system refused a read, write, open or rename."""

    code = "io"


class OutOfSpace(IoError):
    """Disk or quota is full; free some and resume."""

    code = "out_of_space"


class OutOfMemory(Error, MemoryError):
    """An allocation or a child's memory limit was exceeded."""

    code = "out_of_memory"


class Timeout(Error, TimeoutError):
    """A bounded wait ended; the message names who was waited for."""

    code = "timeout"


class Cancelled(Error):
    """Somebody asked to stop."""

    code = "cancelled"


class ChildFailed(Error):
    """A process that headrace started ended badly; `origin` says how."""

    code = "child_failed"


class Unsupported(Error, NotImplementedError):
    """A known thing that this build or machine cannot do."""

    code = "unsupported"


class Busy(Error):
    """Somebody else holds it; the message names the holder."""

    code = "busy"


class PeerDead(Error):
    """A process that takes part has died; the message and `origin` name it."""

    code = "peer_dead"


class AuthFailed(Error, PermissionError):
    """The other side of a connection did not prove that it knows the job's secret."""

    code = "auth_failed"


class InternalError(Error):
    """A bug in headrace, reported as an exception."""

    code = "internal"


BY_CODE: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        Mismatch,
        Corrupt,
        IoError,
        OutOfSpace,
        OutOfMemory,
        Timeout,
        Cancelled,
        ChildFailed,
        Unsupported,
        Busy,
        PeerDead,
        AuthFailed,
        InternalError,
    )
}
