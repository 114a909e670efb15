# SPDX-License-Identifier: Apache-2.0
"""Jobs that are broken at a random moment. Usage: comm_breaker.py ROUNDS SEED [TRANSPORT].

Each round forks 2 to 4 ranks, which mix operations by name and in order, in the world and in sets,
or do little but init and shutdown, and stops some of them for a while; then one of them is killed,
leaves or raises. All others must hear of it, of that rank, soon. What went wrong is printed with
the seed of its round, and is the exit code.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from headrace._native import comm
from hvd_ranks import free_port

ROUND_SECONDS = 60.0
WAYS = ("kill", "kill", "exit", "raise", "shutdown", "kill in cycles", "kill in cycles")
START_SECONDS = 4  # to meet: who is not yet known by its process is missed by time


class Ranks:
    """What one rank has: an engine by name with a set of some ranks, and a world in order."""

    def __init__(self, transport: str) -> None:
        headrace.init()
        self.size, self.rank = headrace.size(), headrace.rank()
        self.some = [0, self.size - 1] if self.size > 2 else [1]
        self.pair = headrace.add_process_set(self.some)
        self.context, _ = comm.join()
        self.ordered = self.context.world
        self.half = self.context.split(self.ordered, self.rank % 2, self.rank)

    def in_order(self, world: Any, count: int) -> None:
        values = np.full(count, 1.0, np.float32)
        memory = comm.Memory(values.ctypes.data, count, "float32")
        world.all_reduce(memory, memory, comm.Op.sum).wait(30.0)
        assert values[-1] == world.size, values[-1]

    def step(self, rng: random.Random, number: int) -> None:
        """The same on all ranks: `rng` is."""
        what = rng.randrange(8)
        count = rng.choice([1, 14, 1000, 30_000, 700_000])
        if what == 0:
            self.in_order(self.ordered, count)
        elif what == 1:
            self.in_order(self.half, count)
        elif what == 2:
            names = [f"{number}.{i}" for i in range(rng.randrange(1, 40))]
            random.shuffle(names)  # another order on each rank
            ones = np.ones(count if len(names) < 4 else 50, np.float32)
            works = [headrace.allreduce_async(ones, name=name) for name in names]
            for work in works:
                assert headrace.synchronize(work)[-1] == 1.0
        elif what == 3 and self.pair.included():
            out = headrace.allreduce(np.ones(count), op=headrace.Sum, process_set=self.pair)
            assert out[-1] == len(self.some)
        elif what == 4:
            out = headrace.allgather(np.full((self.rank + 1, 3), self.rank), name=f"g{number}")
            assert len(out) == self.size * (self.size + 1) // 2
        elif what == 5:
            assert headrace.broadcast_object({"n": number}, 0) == {"n": number}
        elif what == 6:
            values = np.full(count, 3.0, np.float32)
            work = self.context.world.broadcast(
                comm.Memory(values.ctypes.data, count, "float32"), self.size - 1, blocking=False
            )
            headrace.barrier()
            work.wait(30.0)
        elif what == 7:
            headrace.alltoall(np.ones(self.size * 100), name=f"a{number}")


def live(folder: Path, transport: str, seed: int, way: str, is_victim: bool) -> dict[str, Any]:
    """Of one rank, until something ends it."""
    ranks: Ranks | None = Ranks(transport)
    assert ranks is not None
    (folder / f"begun{ranks.rank}").touch()
    end = folder / "now"
    rng = random.Random(seed)
    number = 0
    try:
        while True:
            if way == "kill in cycles" and number % 2:
                headrace.shutdown()
                ranks = None
                ranks = Ranks(transport)
            assert ranks is not None
            ranks.step(rng, number)
            number += 1
            if is_victim and "kill" not in way and end.exists():
                break
    except RuntimeError as error:
        return {"error": type(error).__name__, "text": str(error), "at": time.time(), "n": number}
    if way == "exit":
        os._exit(0)
    if way == "raise":
        try:
            raise ValueError("the data is bad")
        except ValueError as error:
            sys.excepthook(type(error), error, error.__traceback__)
            sys.last_value = error  # as the interpreter does
        sys.exit(1)
    headrace.shutdown()
    del ranks
    return {"left": number}


def start(rank: int, size: int, port: int, folder: Path, life: tuple[Any, ...]) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), HEADRACE_COMM_TRANSPORT=life[0],
        HEADRACE_START_TIMEOUT=str(START_SECONDS),
    )  # fmt: skip
    trace = (folder / f"stack{rank}").open("w")
    errors = os.open(folder / f"stderr{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(errors, 2)
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
    code = 0
    try:
        (folder / f"answer{rank}").write_text(json.dumps(live(folder, *life)))
    except SystemExit as end:
        code = int(str(end.code))
    except BaseException:
        (folder / f"answer{rank}").write_text(json.dumps({"bug": traceback.format_exc()}))
        code = 1
    sys.exit(code)


def wait_begun(folder: Path, size: int) -> bool:
    deadline = time.monotonic() + 30
    while not all((folder / f"begun{rank}").exists() for rank in range(size)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def break_one(rng: random.Random, pids: list[int], victim: int, way: str, folder: Path) -> float:
    """Stop some for a while, then end the victim; when that was."""
    time.sleep(rng.random() ** 2 * 0.5)
    for pid in pids:
        if rng.random() < 0.3:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.random() * 0.1)
            os.kill(pid, signal.SIGCONT)
    (folder / "now").touch()
    if "kill" in way:
        os.kill(pids[victim], signal.SIGKILL)
    return time.time()


def wait_all(pids: list[int], folder: Path) -> list[int]:
    """Ranks that did not end; they are ended now."""
    left = dict(enumerate(pids))
    deadline = time.monotonic() + ROUND_SECONDS
    while left and time.monotonic() < deadline:
        for rank, pid in list(left.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del left[rank]
        time.sleep(0.002)
    for pid in left.values():
        os.kill(pid, signal.SIGUSR1)
    time.sleep(0.5 if left else 0)
    for pid in left.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return list(left)


def missed_in_init(text: str, victim: int, way: str) -> bool:
    """A rank that died before all had met; with rank 0 the store dies."""
    missing = f"ranks did not come within {START_SECONDS} s: {victim};" in text
    return way == "kill in cycles" and (missing or (victim == 0 and "store" in text))


def problems(folder: Path, size: int, victim: int, way: str, hung: list[int]) -> list[str]:
    found = []
    for rank in range(size):
        stack, answer = folder / f"stack{rank}", folder / f"answer{rank}"
        if rank in hung:
            found.append(f"rank {rank} hung\n{stack.read_text()}")
        elif rank == victim:
            continue
        elif not answer.exists():
            found.append(f"rank {rank} ended: {(folder / f'stderr{rank}').read_text()[-2000:]}")
        else:
            said = json.loads(answer.read_text())
            text = said.get("text", "")
            if "bug" in said:
                found.append(f"rank {rank}: {said['bug']}")
            elif f"rank {victim}" not in text and not missed_in_init(text, victim, way):
                found.append(f"rank {rank} names another: {said}")
            elif way == "raise" and said["error"] != "Cancelled" and "data is bad" not in text:
                found.append(f"rank {rank} is not told why: {said}")
    return found


def one_round(seed: int, transport: str) -> list[str]:
    rng = random.Random(seed)
    size = rng.randrange(2, 5)
    victim, way = rng.randrange(size), rng.choice(WAYS)
    folder, port = Path(tempfile.mkdtemp(prefix="headrace-breaker-")), free_port()
    pids = [
        start(rank, size, port, folder, (transport, seed, way, rank == victim))
        for rank in range(size)
    ]
    if wait_begun(folder, size):
        break_one(rng, pids, victim, way, folder)
    else:
        victim = -1
    hung = wait_all(pids, folder)
    found = problems(folder, size, victim, way, hung)
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
    return [f"seed {seed}, {size} ranks, {way} of {victim}: {one}" for one in found]


def main() -> None:
    rounds, seed = int(sys.argv[1]), int(sys.argv[2])
    transport = sys.argv[3] if len(sys.argv) > 3 else "auto"
    wrong = 0
    for number in range(rounds):
        found = one_round(seed + number, transport)
        wrong += bool(found)
        for one in found:
            print(one, flush=True)
    print(f"{rounds} rounds from seed {seed}, {transport}: {wrong} wrong", flush=True)
    sys.exit(min(wrong, 1))


if __name__ == "__main__":
    main()
