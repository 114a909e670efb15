# SPDX-License-Identifier: Apache-2.0
"""Load `headrace._native`, the compiled module, apart from any other copy of Arrow."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType


def _load() -> ModuleType:
    # A program may have loaded pyarrow with RTLD_GLOBAL. Our own copy of Arrow would then bind to
    # the symbols of that one, and two allocators would free each other's memory. Deep binding makes
    # our libraries prefer their own symbols. It must stay off where a malloc interposer is at work
    # (LD_PRELOAD, sanitizers), because deep binding goes past the interposer.
    if "LD_PRELOAD" in os.environ or not hasattr(os, "RTLD_DEEPBIND"):
        return importlib.import_module("headrace._native")
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    try:
        return importlib.import_module("headrace._native")
    except ImportError as error:
        raise ImportError(
            f"the compiled part of headrace cannot be loaded: {error}; "
            "in a checkout run `make build`, else install the package again",
            name="headrace._native",
        ) from error
    finally:
        sys.setdlopenflags(flags)


native = _load()


def need_pandas() -> None:
    """Say so in a line of our own where pandas is absent: pyarrow asks for it deep inside.

    Raises:
        ImportError: there is no pandas.
    """
    if importlib.util.find_spec("pandas") is None:
        raise ImportError("pandas is not installed: pip install pandas", name="pandas")
