# SPDX-License-Identifier: Apache-2.0
"""One rank for test_gpu_paths.py: collectives of the engine itself on "GPU" memory, over stand-ins.

Usage: gpu_rank.py RANK RANKS FOLDER. Prints what came of it as one JSON line.
"""

from __future__ import annotations

import array
import json
import sys
from pathlib import Path
from typing import Any

from comm_rank import folder_store
from headrace._errors import Error
from headrace._native import comm


def on_gpu(values: Any) -> Any:
    address, count = values.buffer_info()
    return comm.Memory(address, count, "float32", gpu=0, stream=0)


def run(world: Any) -> dict[str, Any]:
    rank, size = world.rank, world.size
    told: dict[str, Any] = {}

    values = array.array("f", [rank + 1.0] * 3)
    memory = on_gpu(values)
    work = world.all_reduce(memory, memory, comm.Op.sum, blocking=False)
    work.wait_on_stream(0)
    work.wait(20.0)
    told["sum"] = values.tolist()

    first, second = array.array("f", [rank]), array.array("f", [-rank])
    world.begin_group()
    for one in (first, second):
        world.all_reduce(on_gpu(one), on_gpu(one), comm.Op.max, blocking=False)
    world.end_group().wait(20.0)
    told["group"] = [first[0], second[0]]

    world.barrier_on_gpu(0, 0)

    mine, theirs = array.array("f", [rank] * 9), array.array("f", [0.0] * 9)
    sent = world.send(on_gpu(mine), (rank + 1) % size, 0, blocking=False)
    world.recv(on_gpu(theirs), (rank - 1) % size, 0, blocking=False).wait(20.0)
    sent.wait(20.0)
    told["message"] = theirs[8]
    return told


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    context = comm.init(rank, ranks, "headrace", 0, 20.0, 20.0, *folder_store(folder))
    try:
        told = run(context.world)
    except Error as error:
        told = {"kind": type(error).__name__, "error": str(error)}
    print(json.dumps(told))


main()
