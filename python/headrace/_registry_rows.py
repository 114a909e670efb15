# SPDX-License-Identifier: Apache-2.0
"""Parts of a version's row as the native calls take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

EMPTY_ITEM = "%E2%88%85"
"""The last part of the name of a model whose item has no name."""


def metric(name: str, value: float | tuple[float, int]) -> list[Any]:
    if isinstance(value, tuple):
        return [name, number(value[0]), int(value[1])]
    return [name, number(value)]


def number(value: float) -> float | str:
    number = float(value)
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def lineage(
    table: Mapping[str, Any] | str | None,
    run: str | None = None,
    item: str | None = None,
    attempt: int = 0,
    code_version: str | None = None,
) -> dict[str, Any]:
    out: dict[str, Any] = {"attempt": attempt}
    for key, value in (("run", run), ("item", item), ("code_version", code_version)):
        if value is not None:
            out[key] = value
    if isinstance(table, str):
        out["table"] = {"url": table, "format": ""}
    elif table is not None:
        out["table"] = dict(table)
    return out


def item_of(name: str, lineage: Mapping[str, Any]) -> str:
    """Give the item that a model of a set is of: as it was registered, else by its name."""
    if item := lineage.get("item"):
        return str(item)
    segment = name.rpartition("/")[2]
    return "" if segment == EMPTY_ITEM else unquote(segment, errors="surrogateescape")
