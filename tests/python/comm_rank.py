# SPDX-License-Identifier: Apache-2.0
"""One rank for test_namespaces.py, with its network and host name, and a folder as the store.

Usage: comm_rank.py CASE RANK RANKS FOLDER. Prints what came of it as one JSON line.
"""

from __future__ import annotations

import array
import json
import sys
import time
from pathlib import Path
from typing import Any

from headrace._native import comm

COUNT = 300_000


def folder_store(folder: Path) -> tuple[Any, Any]:
    def path_of(key: str) -> Path:
        return folder / key.replace("/", "_")

    def store_set(key: str, value: str) -> None:
        part = path_of(key).with_suffix(".part")
        part.write_text(value)
        part.rename(path_of(key))

    def store_get(key: str, limit: float) -> str | None:
        end = time.monotonic() + limit
        while not path_of(key).exists():
            if time.monotonic() > end:
                return None
            time.sleep(0.002)
        return path_of(key).read_text()

    return store_set, store_get


def reduce_once(world: Any, values: Any) -> None:
    address, count = values.buffer_info()
    memory = comm.Memory(address, count, "float32")
    world.all_reduce(memory, memory, comm.Op.sum, blocking=False).wait(60.0)


def main() -> None:
    case, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    folder = Path(sys.argv[4])
    store_set, store_get = folder_store(folder)
    context = comm.init(
        rank, ranks, "headrace", 0, 60.0, 20.0, store_set, store_get, node=f"node {rank}"
    )
    values = array.array("f", [float(rank + 1)] * COUNT)
    reduce_once(context.world, values)
    if case == "reduce":
        print(json.dumps({"sum": values[0], "last": values[-1]}))
        return
    (folder / f"ready-{rank}").touch()
    start = time.monotonic()
    try:
        while True:
            reduce_once(context.world, array.array("f", [1.0] * COUNT))
            time.sleep(0.01)
    except Exception as error:
        print(json.dumps({"type": type(error).__name__, "error": str(error)}))
        print(f"rank {rank}: {time.monotonic() - start:.2f} s: {error}", file=sys.stderr)


main()
