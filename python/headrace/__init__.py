# SPDX-License-Identifier: Apache-2.0
"""Deep learning on data-lake data.

Importing this package imports no framework; each one lives behind its own submodule.
"""

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
from headrace._run import run
from headrace._version import __version__

__all__ = [
    "AlreadyExists",
    "AuthFailed",
    "Busy",
    "Cancelled",
    "ChildFailed",
    "Corrupt",
    "Error",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "Mismatch",
    "NotFound",
    "OutOfMemory",
    "OutOfSpace",
    "PeerDead",
    "Timeout",
    "Unsupported",
    "__version__",
    "run",
]
