# SPDX-License-Identifier: Apache-2.0
"""Deep learning on data-lake data.

Importing this package imports no framework; each one lives behind its own submodule.
"""

from pathlib import Path

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
    "cmake_dir",
    "run",
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
