# SPDX-License-Identifier: Apache-2.0
"""How this process finds the other ranks of its job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace._front import comm
from headrace._settings import number, setting

if TYPE_CHECKING:
    from headrace._native.comm import Context

# Of operations in a fixed order; those with names are watched by the stall inspector.
_OPERATION_SECONDS = 1e9

_store: Any = None


def start_seconds() -> float:
    """How long `init` waits for the other ranks."""
    return number("START_TIMEOUT", 30.0)


def join(generation: int, ranks: Sequence[int] | None) -> tuple[Context, Any]:
    """Meet the others; `ranks` are those of the launcher that form the world, None for all.

    Also says where this process is among them, or None where that is to be found out.

    Raises:
        ValueError: this process is none of `ranks`.
    """
    by_environment = getattr(comm, "join", None)
    if by_environment is not None:
        joined: tuple[Context, Any] = by_environment(list(ranks or ()), _OPERATION_SECONDS)
        return joined
    rank, size = _place()
    if ranks is not None:
        if rank not in ranks:
            raise ValueError(f"headrace: rank {rank} called init(comm={list(ranks)}) without it")
        rank, size = list(ranks).index(rank), len(ranks)
    job = "hvd" if ranks is None else "hvd." + ".".join(map(str, ranks))
    seconds = (_OPERATION_SECONDS, start_seconds())
    return comm.init(rank, size, job, generation, *seconds, *_store_calls(rank, size)), None


def _place() -> tuple[int, int]:
    rank, size = setting("RANK"), setting("SIZE")
    if rank is None or size is None:
        rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    return (int(rank), int(size)) if rank is not None and size is not None else (0, 1)


def _store_calls(rank: int, size: int) -> tuple[Any, Any]:
    if size == 1:
        table: dict[str, str] = {}
        return table.__setitem__, lambda key, limit: table.get(key)
    store = _torch_store(rank, size)

    def store_get(key: str, limit: float) -> str | None:
        try:
            store.wait([key], timedelta(seconds=max(limit, 0.001)))
        except (RuntimeError, TimeoutError):  # torch's store has no class of its own for it
            return None
        return bytes(store.get(key)).decode()

    return store.set, store_get


def _torch_store(rank: int, size: int) -> Any:
    global _store
    if _store is None:
        from torch.distributed import TCPStore

        _store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            size,
            is_master=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            timeout=timedelta(seconds=start_seconds()),
            wait_for_workers=False,
        )
    return _store
