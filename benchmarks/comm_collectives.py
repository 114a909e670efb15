# SPDX-License-Identifier: Apache-2.0
"""Collectives of headrace, Open MPI and torch's gloo in turns on this machine, as ratios.

All ranks of all peers are there at once, asleep, and take turns in short batches: the best batch
counts for latencies, the median of the batches that nothing else disturbed for large sizes. The
processor is shared with whatever else runs; the last rows tell how much that was.

`gloo` is torch's, through torch.distributed, with what its Python costs: there is no other gloo to
install. Ratios of a C++ interface to it are so much better for that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import comm_peers
from comm_peers import CannotDoIt, Measured, Peer, Side
from side_by_side import Figures, argument_parser

KIB, MIB = 1 << 10, 1 << 20
LATENCY_BYTES = 64 * KIB  # up to here the best batch counts

Goals = dict[str, float | None]


@dataclasses.dataclass
class Case:
    """One collective at one size; goals by the name of the peer."""

    kind: str
    size: int
    goals: Goals
    dtype: str = "f32"

    @property
    def name(self) -> str:
        """As the tables say it."""
        text = f"{self.size // MIB} MiB" if self.size >= MIB else f"{self.size // KIB} KiB"
        text = f"{self.size} B" if self.size < KIB else text
        kind = self.kind.replace("_", "-")
        return f"{kind} {text}" + ("" if self.dtype == "f32" else f" {self.dtype}")


TWO_RANKS = [
    Case("all_reduce", 4, {"Open MPI": 1.5, "torch gloo": 100}),
    Case("all_reduce", KIB, {"Open MPI": 1.5, "torch gloo": 100}),
    Case("all_reduce", 64 * KIB, {"Open MPI": 1.5, "torch gloo": 15}),
    Case("all_reduce", MIB, {"Open MPI": 1.4, "torch gloo": 4}),
    Case("all_reduce", 16 * MIB, {"Open MPI": 1.8, "torch gloo": 3, "the limit": 0.75}),
    Case("all_reduce", 64 * MIB, {"Open MPI": 3, "torch gloo": 3, "the limit": 0.55}),
    Case("all_reduce", 256 * MIB, {"Open MPI": 3, "torch gloo": 3}),
    Case("all_reduce", 64 * MIB, {"torch gloo": 3}, "bf16"),
    Case("reduce_scatter", MIB, {"Open MPI": 3, "torch gloo": 4}),
    Case("reduce_scatter", 16 * MIB, {"Open MPI": 3, "torch gloo": 4}),
    Case("all_gather", MIB, {"Open MPI": 1, "torch gloo": 6}),
    Case("all_gather", 16 * MIB, {"Open MPI": 1, "torch gloo": 6}),
    Case("all_to_all", MIB, {"Open MPI": 1, "torch gloo": 2.5}),
    Case("all_to_all", 16 * MIB, {"Open MPI": 1, "torch gloo": 2.5}),
]
FOUR_RANKS = [
    Case("all_reduce", 4, {"Open MPI": 1.3, "torch gloo": 40}),
    Case("all_reduce", 64 * KIB, {"Open MPI": 1.3, "torch gloo": 20}),
    Case("all_reduce", 16 * MIB, {"Open MPI": 1.8, "torch gloo": 2.5}),
    Case("reduce_scatter", MIB, {"Open MPI": None, "torch gloo": None}),
    Case("all_gather", MIB, {"Open MPI": None, "torch gloo": None}),
    Case("all_to_all", MIB, {"Open MPI": None, "torch gloo": None}),
]


def resnet50_counts() -> list[int]:
    """Elements of the 161 parameters of torchvision's resnet50, last layer first as gradients come.

    A bottleneck is a convolution 1x1 to `width`, 3x3, 1x1 to 4 x width, each followed by the scale
    and shift of a batch norm; the first one of a stage has a 1x1 convolution beside it.
    """
    counts = [64 * 3 * 7 * 7, 64, 64]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        after = 4 * width
        for block in range(blocks):
            counts += [width * before, width, width, width * width * 9, width, width]
            counts += [after * width, after, after]
            counts += [after * before, after, after] if block == 0 else []
            before = after
    counts += [1000 * 2048, 1000]
    assert len(counts) == 161
    return counts[::-1]


def text_of(seconds: float) -> str:
    """With three digits, in the unit that fits."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"


class Run:
    """One run: its figures, and how quiet the machine was."""

    def __init__(self, folder: pathlib.Path, python: str | None, quick: bool) -> None:
        self.folder = folder
        self.python = python
        self.quick = quick
        self.figures = Figures()
        self.missing: dict[str, str] = {}
        self.rounds = 0
        self.disturbed = 0

    def measure(self, sides: dict[str, Side], best: bool, rounds: int = 0) -> Measured:
        """In turns; counts what was disturbed."""
        rounds = 2 if self.quick else rounds or (9 if best else 7)
        measured = comm_peers.in_turns(sides, best, rounds, self.quick)
        self.rounds += measured.rounds
        self.disturbed += measured.disturbed
        return measured

    def ratios(self, name: str, measured: Measured, goals: Goals, ours: str = "headrace") -> None:
        """A row for each peer: its time over ours."""
        for peer, goal in goals.items():
            if peer not in measured.seconds:
                self.cannot(f"{name}, {peer} / {ours}", self.missing.get(peer, "not measured"))
                continue
            unit, at_most = measured.seconds[ours], measured.seconds[peer]
            self.figures.add(
                f"{name}, {peer} / {ours}",
                at_most / unit,
                goal,
                unit="x",
                note=f"{text_of(unit)}, {peer} {text_of(at_most)}",
            )

    def cannot(self, name: str, why: str) -> None:
        """A row that says why there is no figure."""
        self.figures.add(name, float("nan"), note=f"not measured: {why}")

    @contextlib.contextmanager
    def peers(self, makers: dict[str, Callable[[], Peer]]) -> Iterator[dict[str, Peer]]:
        """Those that can be started; the others' reasons are kept."""
        started: dict[str, Peer] = {}
        try:
            for name, make in makers.items():
                try:
                    started[name] = make()
                except CannotDoIt as error:
                    self.missing[name] = str(error)
            yield started
        finally:
            for peer in started.values():
                peer.close()

    def common(self, ranks: int) -> dict[str, Callable[[], Peer]]:
        """The peers of the C++ interface."""
        return {
            "headrace": lambda: comm_peers.headrace(self.folder, ranks),
            "Open MPI": lambda: comm_peers.open_mpi(self.folder, ranks),
            "torch gloo": lambda: comm_peers.torch_peer(self.python, "gloo", self.folder, ranks),
        }

    def collectives(self, cases: list[Case], peers: dict[str, Peer], ranks: int) -> None:
        """Each case with all peers that have it."""
        for case in cases:
            command = f"time {case.kind} {case.dtype} {case.size} {{times}}"
            names = ["headrace", *case.goals]
            sides = {name: Side(peers[name], command) for name in names if name in peers}
            if "the limit" in sides:
                sides["the limit"] = Side(
                    peers["the limit"], f"time all_to_all f32 {case.size} {{times}}"
                )
            self.add_case(f"{ranks} ranks, {case.name}", case, sides)

    def add_case(self, name: str, case: Case, sides: dict[str, Side]) -> None:
        """Rows of one case."""
        rounds = 0 if case.size < 64 * MIB else 3
        try:
            measured = self.measure(sides, case.size <= LATENCY_BYTES, rounds)
        except CannotDoIt as error:
            self.cannot(name, str(error))
            return
        self.ratios(name, measured, case.goals)

    def resnet(self, peers: dict[str, Peer]) -> None:
        """The gradients of a ResNet-50, unfused."""
        counts = " ".join(map(str, resnet50_counts()))
        one_by_one = f"list {{times}} {counts}"
        wanted = {
            "headrace": Side(peers["headrace"], one_by_one),
            "Open MPI": Side(peers["Open MPI"], one_by_one) if "Open MPI" in peers else None,
            "headrace in torch": Side(peers["headrace in torch"], one_by_one)
            if "headrace in torch" in peers
            else None,
        }
        if "torch gloo" in peers:
            wanted["torch gloo"] = Side(peers["torch gloo"], one_by_one)
            wanted["torch gloo, asynchronous"] = Side(
                peers["torch gloo"], f"async {{times}} {counts}"
            )
        measured = self.measure({k: side for k, side in wanted.items() if side}, False)
        goals: Goals = {"torch gloo": 8, "torch gloo, asynchronous": 4, "Open MPI": 1.8}
        self.ratios("161 gradients of ResNet-50", measured, goals)
        if "headrace in torch" in measured.seconds:
            goals = {"torch gloo": None, "torch gloo, asynchronous": None}
            self.ratios("the same by dist.all_reduce", measured, goals, "headrace in torch")

    def front_end(self, peers: dict[str, Peer]) -> None:
        """What a call of dist.all_reduce takes, and training steps."""
        if "headrace in torch" not in peers or "torch gloo" not in peers:
            self.cannot("torch front end", self.missing.get("headrace in torch", "no torch gloo"))
            return
        ours, gloo = peers["headrace in torch"], peers["torch gloo"]
        for size, text in ((4, "4 B"), (KIB, "1 KiB")):
            command = f"time all_reduce f32 {size} {{times}}"
            sides = {"headrace": Side(ours, command), "torch gloo": Side(gloo, command)}
            if "torch fake" in peers and size == 4:
                sides["torch fake"] = Side(peers["torch fake"], command)
            goals: Goals = {"torch gloo": 10} | ({"torch fake": 1} if size == 4 else {})
            self.ratios(f"dist.all_reduce {text}", self.measure(sides, True), goals)
        for model, text, goal in (
            ("mlp", "DDP step, MLP of 2.1 M parameters", 1.15),
            ("convnet", "DDP step, convnet of 4.7 M parameters", 1.2),
        ):
            command = f"step {model} {{times}}"
            sides = {"headrace": Side(ours, command), "torch gloo": Side(gloo, command)}
            self.ratios(text, self.measure(sides, False), {"torch gloo": goal})

    def starts(self) -> None:
        """Meeting and leaving."""
        for name, what, ranks, goal in (
            ("init and shutdown, 2 ranks", "cycles", 2, 0.1),
            ("start of 64 processes until all have met and left", "start", 64, 2.0),
        ):
            if self.quick and ranks > 2:
                continue
            where = self.folder / f"{what}{ranks}"
            where.mkdir()
            began = time.perf_counter()
            processes = [
                subprocess.Popen(
                    [str(comm_peers.PROGRAM), what, str(where), str(rank), str(ranks)],
                    stdout=subprocess.PIPE,
                )
                for rank in range(ranks)
            ]
            answers = [process.communicate(timeout=120)[0] for process in processes]
            whole = time.perf_counter() - began
            if any(process.returncode for process in processes):
                self.cannot(name, "a rank failed; see above")
                continue
            slowest = max(map(float, answers))
            value = slowest if what == "cycles" else whole
            note = f"the slowest rank: {text_of(slowest)}" if what == "start" else "best of ten"
            self.figures.add(name, value, goal, at_least=False, unit="s", note=note)


def measure_all(run: Run) -> None:
    """Everything, with the ranks of one section at a time."""
    makers = run.common(2) | {
        "the limit": lambda: comm_peers.limit(run.folder),
        "headrace in torch": lambda: comm_peers.torch_peer(run.python, "headrace", run.folder, 2),
        "torch fake": lambda: comm_peers.torch_peer(run.python, "fake", run.folder, 1),
    }
    with run.peers(makers) as peers:
        run.collectives(TWO_RANKS, peers, 2)
        run.resnet(peers)
        run.front_end(peers)
    with run.peers(run.common(4)) as peers:
        run.collectives(FOUR_RANKS, peers, 4)
    run.starts()


def main() -> int:
    """Peers that are not there have rows that say so."""
    parser = argument_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="two batches each: does it work?")
    options = parser.parse_args()
    python = comm_peers.torch_python(options.reference_python)
    began = time.perf_counter()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(pathlib.Path(folder), python, options.quick)
        try:
            measure_all(run)
        except CannotDoIt as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            for name, why in run.missing.items():
                print(f"{name}: {why}", file=sys.stderr)
    run.figures.add(
        "rounds that other work on the machine disturbed",
        100 * run.disturbed / max(run.rounds, 1),
        unit="%",
        note=f"load of the machine at the beginning {load:.2f}, "
        f"{time.perf_counter() - began:.0f} s in all",
    )
    return run.figures.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
