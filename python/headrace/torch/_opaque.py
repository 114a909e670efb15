# SPDX-License-Identifier: Apache-2.0
"""Functions that torch.compile calls and does not look into."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def opaque(function: Callable[P, R]) -> Callable[P, R]:
    """Break the graph at this function. torch's compiler is not imported before a program does."""
    disabled: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **options)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*arguments, **options)

    return call
