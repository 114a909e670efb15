# SPDX-License-Identifier: Apache-2.0
"""How this process finds the other ranks of its job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace._front import comm

if TYPE_CHECKING:
    from headrace._native.comm import Context, Place

# Of operations in a fixed order; those with names are watched by the stall inspector.
_OPERATION_SECONDS = 1e9


def join(ranks: Sequence[int] | None) -> tuple[Context, Place]:
    """Meet the others; `ranks` are those of the launcher that form the world, None for all."""
    joined: tuple[Context, Place] = comm.join(sorted(ranks or ()), _OPERATION_SECONDS)
    return joined
