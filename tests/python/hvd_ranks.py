# SPDX-License-Identifier: Apache-2.0
"""Ranks for the tests of headrace.torch's Horovod names, in an environment that has torch.

Usage: hvd_ranks.py RANKS MODULE CASE...  For each case one process per rank is forked, runs
`CASES[CASE](rank, size)` of the module and prints what it returned as JSON, in one line
{"case": ..., "ranks": [[true, value] or [false, traceback], ...]} for all of them.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASE_SECONDS = 100.0

Case = Callable[[int, int], Any]


def collect() -> tuple[dict[str, Case], Callable[[Case], Case]]:
    """A table of cases, and the decorator that fills it."""
    cases: dict[str, Case] = {}

    def case(function: Case) -> Case:
        cases[function.__name__] = function
        return function

    return cases, case


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rank(function: Case, rank: int, size: int, port: int, folder: Path) -> None:
    """In the child: does not return."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    trace = (folder / f"stack{rank}").open("w")
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=True)
    try:
        answer = [True, function(rank, size)]
    except BaseException:
        answer = [False, traceback.format_exc()]
    (folder / f"answer{rank}").write_text(json.dumps(answer))
    sys.exit(0)  # with the functions of atexit


def run_case(function: Case, size: int) -> list[Any]:
    # Not by `with`: the children leave this function by SystemExit.
    folder, port = Path(tempfile.mkdtemp()), free_port()
    children = {}
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            _rank(function, rank, size, port, folder)
        children[pid] = rank
    ended: dict[int, int] = {}
    deadline = time.monotonic() + CASE_SECONDS
    while len(ended) < size and time.monotonic() < deadline:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in children:
            ended[children[pid]] = status
        else:
            time.sleep(0.005)
    for pid, rank in children.items():
        if rank not in ended:
            os.kill(pid, signal.SIGUSR1)
            time.sleep(0.3)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    answers = [_answer(folder, rank, ended.get(rank)) for rank in range(size)]
    shutil.rmtree(folder)
    return answers


def _answer(folder: Path, rank: int, status: int | None) -> Any:
    path = folder / f"answer{rank}"
    if status is None:
        done = path.read_text() if path.exists() else "nothing"
        return [False, f"hung, after {done}\n" + (folder / f"stack{rank}").read_text()]
    return json.loads(path.read_text()) if path.exists() else [True, {"status": status}]


def main() -> None:
    size, module = int(sys.argv[1]), importlib.import_module(sys.argv[2])
    for name in sys.argv[3:]:
        begin = time.monotonic()
        ranks = run_case(module.CASES[name], size)
        seconds = round(time.monotonic() - begin, 2)
        print(json.dumps({"case": name, "ranks": ranks, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
