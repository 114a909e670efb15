# SPDX-License-Identifier: Apache-2.0
"""Helpers that programs written for Horovod import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: str) -> None:
    """Do nothing: headrace has no extension per framework that could be missing."""


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework `ext_base_name` ("torch", "tensorflow") can be imported here."""
    from importlib.util import find_spec

    return find_spec(ext_base_name) is not None


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether collectives run on GPUs: not yet, tensors on a GPU go through host memory."""
    return False


def split_list(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut `items` into `parts` runs whose lengths differ by one at most, the longer ones first."""
    short, longer = divmod(len(items), parts)
    ends = [short * (i + 1) + min(i + 1, longer) for i in range(parts)]
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether Adasum can run over so many ranks."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
