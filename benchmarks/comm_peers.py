# SPDX-License-Identifier: Apache-2.0
"""Ranks of several libraries that wait side by side, asleep, and time what they are told in turns.

The protocol is that of comm_worker.h: each rank reads commands from a pipe of its own and answers
in one line with the seconds of wall and CPU time.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from side_by_side import ROOT

PROGRAM = ROOT / "build/release/headrace/comm" / "comm_headrace"
ANSWER_SECONDS = 60.0
TICK = os.sysconf("SC_CLK_TCK")


class CannotDoIt(Exception):
    """A peer is missing or has no such operation; the text says which."""


@dataclasses.dataclass
class Batch:
    """The slowest rank's wall time, and what else ran on the machine meanwhile."""

    wall: float
    whole: float  # with what was not timed
    others: float

    @property
    def disturbed(self) -> bool:
        """More CPU time went elsewhere than the resolution of /proc/stat explains."""
        return self.others > 0.1 * self.whole * len(os.sched_getaffinity(0)) + 3 / TICK


def busy_seconds() -> float:
    """CPU seconds of everything on this machine, and what its host kept for itself."""
    words = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, irq, soft, steal = map(int, words[1:9])
    return (user + nice + system + irq + soft + steal) / TICK


class Peer:
    """A library's ranks."""

    def __init__(
        self,
        name: str,
        commands: Sequence[Sequence[str]],
        folder: pathlib.Path,
        ranks: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.pipes: list[int] = []
        self.rest = b""
        folder.mkdir()
        self.errors = (folder / "stderr").open("w+")
        os.mkfifo(folder / "out")
        for rank in range(ranks):
            os.mkfifo(folder / f"{rank}.in")
            # For reading too, or opening would wait for the rank.
            self.pipes.append(os.open(folder / f"{rank}.in", os.O_RDWR))
        self.answers = os.open(folder / "out", os.O_RDWR | os.O_NONBLOCK)
        self.processes = [
            subprocess.Popen(
                command,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stderr=self.errors,
                stdout=self.errors,
            )
            for command in commands
        ]
        self._lines()

    def _lines(self) -> list[list[str]]:
        """One answer of each rank."""
        lines: list[bytes] = []
        deadline = time.monotonic() + ANSWER_SECONDS
        while len(lines) < len(self.pipes):
            if select.select([self.answers], [], [], 0.5)[0]:
                *more, self.rest = (self.rest + os.read(self.answers, 1 << 16)).split(b"\n")
                lines += more
            elif any(process.poll() for process in self.processes):
                raise CannotDoIt(f"{self.name} has ended: {self._last_words()}")
            elif time.monotonic() > deadline:
                raise CannotDoIt(f"{self.name} did not answer in {ANSWER_SECONDS:g} s")
        return [line.decode().split() for line in lines]

    def _last_words(self) -> str:
        self.errors.seek(0)
        return " ".join(self.errors.read().split())[-300:]

    def ask(self, command: str) -> Batch:
        """Have all ranks do it."""
        before = busy_seconds()
        began = time.perf_counter()
        for pipe in self.pipes:
            os.write(pipe, f"{command}\n".encode())
        lines = self._lines()
        for words in lines:
            if words[1] in ("cannot", "unknown"):
                raise CannotDoIt(f"{self.name}: {' '.join(words[2:]) or command}")
        cpu = sum(float(words[2]) for words in lines)
        wall = max(float(words[1]) for words in lines)
        return Batch(wall, time.perf_counter() - began, busy_seconds() - before - cpu)

    def close(self) -> None:
        """End the ranks; those that do not want to are killed."""
        for pipe in self.pipes:
            os.write(pipe, b"quit\n")
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in [*self.pipes, self.answers]:
            os.close(pipe)
        self.errors.close()


def headrace(folder: pathlib.Path, ranks: int) -> Peer:
    """Our C++ interface."""
    if not PROGRAM.exists():
        raise CannotDoIt(f"{PROGRAM} is not there; run `ninja -C build/release comm_headrace`")
    where = folder / f"headrace{ranks}"
    commands = [[str(PROGRAM), "rank", str(where), str(rank), str(ranks)] for rank in range(ranks)]
    return Peer("headrace", commands, where, ranks)


def limit(folder: pathlib.Path) -> Peer:
    """Two threads that copy past the caches."""
    where = folder / "limit"
    return Peer("two copying threads", [[str(PROGRAM), "limit", str(where)]], where, 1)


def open_mpi_program(folder: pathlib.Path) -> tuple[str, str]:
    """Open MPI's launcher, and its side built here."""
    compiler, launcher = shutil.which("mpicxx"), shutil.which("mpirun")
    if not compiler or not launcher:
        raise CannotDoIt("Open MPI is not installed; run `tools/apt.sh bench`")
    program = folder / "comm_openmpi"
    if not program.exists():
        source = ROOT / "benchmarks" / "comm_openmpi.cc"
        build = [compiler, "-std=c++20", "-O2", str(source), "-o", str(program)]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotDoIt(f"Open MPI: {' '.join(build)} failed: {done.stderr[-300:]}")
    return launcher, str(program)


def open_mpi(folder: pathlib.Path, ranks: int) -> Peer:
    """Open MPI with its own choice of transports."""
    launcher, program = open_mpi_program(folder)
    where = folder / f"openmpi{ranks}"
    command = [launcher, "--allow-run-as-root", "-np", str(ranks)]
    command += ["--oversubscribe"] if ranks > len(os.sched_getaffinity(0)) else []
    return Peer("Open MPI", [[*command, program, str(where)]], where, ranks)


def torch_peer(python: str | None, backend: str, folder: pathlib.Path, ranks: int) -> Peer:
    """torch.distributed with that backend; "fake" is one process that believes to be of two."""
    if python is None:
        raise CannotDoIt("no Python with torch; run `make .venv-reference/.done`")
    where = folder / f"torch-{backend}{ranks}"
    worker = str(ROOT / "benchmarks" / "comm_torch_worker.py")
    commands = [
        [python, worker, backend, str(where), str(rank), str(ranks)] for rank in range(ranks)
    ]
    return Peer(f"torch {backend}", commands, where, ranks, {"PYTHONPATH": str(ROOT / "python")})


def torch_python(given: str | None) -> str | None:
    """A Python that has torch."""
    for python in [given] if given else [sys.executable, str(ROOT / ".venv-reference/bin/python")]:
        probe = [python, "-c", "import importlib.util as u; assert u.find_spec('torch')"]
        if (
            pathlib.Path(python).exists()
            and not subprocess.run(probe, capture_output=True, check=False).returncode
        ):
            return python
    return None


@dataclasses.dataclass
class Side:
    """What a peer is to do; `{times}` in the command is how often."""

    peer: Peer
    command: str


@dataclasses.dataclass
class Measured:
    """Seconds of one execution on each side, and how many rounds others disturbed."""

    seconds: dict[str, float]
    rounds: int
    disturbed: int


def times_for(side: Side, batch_seconds: float) -> int:
    """How many executions make a batch of about that length."""
    times = 1
    while True:
        wall = side.peer.ask(side.command.format(times=times)).wall
        wanted = max(1, int(batch_seconds / max(wall / times, 1e-9)))
        if wall > batch_seconds / 5 or wanted <= times:
            return wanted
        times = min(wanted, times * 20)


def in_turns(sides: Mapping[str, Side], best: bool, rounds: int, quick: bool = False) -> Measured:
    """Batches of all sides in turns: the best batch, or the median of undisturbed rounds."""
    length = 0.005 if quick else 0.02 if best else 0.1
    times = {name: times_for(side, length) for name, side in sides.items()}
    taken: list[dict[str, Batch]] = []
    for turn in range(rounds):
        order = list(sides) if turn % 2 == 0 else list(reversed(sides))
        batches = {
            name: sides[name].peer.ask(sides[name].command.format(times=times[name]))
            for name in order
        }
        taken.append(batches)
    quiet = [one for one in taken if not any(batch.disturbed for batch in one.values())]
    used = quiet if len(quiet) >= 2 else taken
    choose = min if best else statistics.median
    seconds = {
        name: choose([one[name].wall / times[name] for one in (taken if best else used)])
        for name in sides
    }
    return Measured(seconds, rounds, rounds - len(quiet))
