# SPDX-License-Identifier: Apache-2.0
"""The console script `headrace`: become the binary that lies in the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def binary() -> Path:
    """Path of the binary that belongs to this package."""
    return Path(__file__).resolve().parent / "bin" / "headrace"


def run_main() -> NoReturn:
    """`headracerun ...` is `headrace run ...`."""
    main(["run", *sys.argv[1:]])


def main(arguments: list[str] | None = None) -> NoReturn:
    """Replace this process by the binary; it knows this interpreter by HEADRACE_PYTHON."""
    path = binary()
    os.environ.setdefault("HEADRACE_PYTHON", sys.executable)
    try:
        os.execv(path, [str(path), *(sys.argv[1:] if arguments is None else arguments)])
    except OSError as error:
        sys.exit(
            f"headrace: {path} cannot be started: {error.strerror}; "
            "in a checkout run `make build`, else install the package again"
        )
