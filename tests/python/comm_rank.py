# SPDX-License-Identifier: Apache-2.0
"""One rank for test_namespaces.py, with its network and host name, and a folder as the store.

Usage: comm_rank.py CASE RANK RANKS FOLDER. Prints what came of it as one JSON line.
"""

from __future__ import annotations

import array
import json
import socket
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


def sockets() -> dict[str, Any]:
    """TCP of this network namespace: ports that are listened at, and how many connections."""
    listening, established = "0A", "01"
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        "listens": [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == listening],
        "connections": sum(row[3] == established for row in rows),
    }


def memory(values: Any) -> Any:
    address, count = values.buffer_info()
    return comm.Memory(address, count, "float32")


def wrong_kinds(world: Any, rank: int, ranks: int) -> list[str]:
    """Every kind, small and large, with values that say where they came from."""
    wrong = []
    for count in (1, 50_000):
        own = array.array("f", [float(rank)] * count)
        for_each = array.array("f", [float(rank * ranks + to) for to in range(ranks)])
        parts = array.array("f", [value for value in for_each for _ in range(count)])
        for root in range(ranks):
            sent = array.array("f", own)
            world.broadcast(memory(sent), root).wait(60.0)
            if list(sent) != [float(root)] * count:
                wrong.append(f"broadcast {count} from {root}")
        got = array.array("f", bytes(4 * count * ranks))
        world.all_gather(memory(own), memory(got)).wait(60.0)
        if list(got) != [float(one) for one in range(ranks) for _ in range(count)]:
            wrong.append(f"all_gather {count}")
        world.all_to_all(memory(parts), memory(got)).wait(60.0)
        if list(got) != [float(one * ranks + rank) for one in range(ranks) for _ in range(count)]:
            wrong.append(f"all_to_all {count}")
        share = array.array("f", bytes(4 * count))
        world.reduce_scatter(memory(parts), memory(share), comm.Op.sum).wait(60.0)
        if list(share) != [float(sum(one * ranks + rank for one in range(ranks)))] * count:
            wrong.append(f"reduce_scatter {count}")
    return wrong


def main() -> None:
    case, rank, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    folder = Path(sys.argv[4])
    store_set, store_get = folder_store(folder)
    context = comm.init(
        rank,
        ranks,
        "headrace",
        0,
        60.0,
        20.0,
        store_set,
        store_get,
        node=f"node {socket.gethostname()}",
    )
    values = array.array("f", [float(rank + 1)] * COUNT)
    reduce_once(context.world, values)
    if case == "kinds":
        print(json.dumps({"wrong": wrong_kinds(context.world, rank, ranks)}))
        return
    if case == "sockets":
        found = sockets()
        total = values[0]
        reduce_once(context.world, values)  # nobody leaves before all have looked
        print(json.dumps({"sum": total, **found}))
        return
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


if __name__ == "__main__":
    main()
