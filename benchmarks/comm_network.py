# SPDX-License-Identifier: Apache-2.0
"""All-reduce over TCP: headrace, Open MPI and torch's gloo in turns, on loopback and between hosts.

The two hosts are network namespaces of this machine, joined by a pair of virtual interfaces; that
needs root, `ip` and, for the last rows, iperf3. All ranks share the processor, so what is compared
is what TCP costs the processor, not a network.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import comm_peers
from comm_collectives import KIB, MIB, Case, Run
from comm_peers import CannotDoIt, Peer, Side
from side_by_side import ROOT, argument_parser

ADDRESSES = ("10.92.8.1", "10.92.8.2")
LOOPBACK = [
    Case("all_reduce", 4, {"Open MPI": 1.2, "torch gloo": 5}),
    Case("all_reduce", KIB, {"Open MPI": 1.2, "torch gloo": 5}),
    Case("all_reduce", MIB, {"Open MPI": 1.1, "torch gloo": 1.1}),
    Case("all_reduce", 16 * MIB, {"Open MPI": 1.1, "torch gloo": 1.1}),
    Case("all_reduce", 64 * MIB, {"Open MPI": 1.1, "torch gloo": 1.1}),
]
TWO_HOSTS = [
    Case("all_reduce", 4, {"Open MPI": 1.0, "torch gloo": 10}),
    Case("all_reduce", 64 * KIB, {"Open MPI": 1.0, "torch gloo": 3}),
    Case("all_reduce", MIB, {"Open MPI": 1.0, "torch gloo": 1.9}),
    Case("all_reduce", 16 * MIB, {"Open MPI": 1.2, "torch gloo": 1.3}),
    Case("all_reduce", 64 * MIB, {"Open MPI": 1.5, "torch gloo": 1.2}),
]


def ip(*arguments: str) -> None:
    """Run `ip`; what it refuses ends this part."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotDoIt(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Place:
    """Where the two ranks run: what to put before a command, and the interface between them."""

    def __init__(self, name: str, interface: str, hosts: Sequence[str] = ()) -> None:
        self.name = name
        self.interface = interface
        self.hosts = hosts

    def at(self, rank: int, command: Sequence[str]) -> list[str]:
        """`command` as a rank runs it."""
        prefix = ["ip", "netns", "exec", self.hosts[rank]] if self.hosts else []
        return [*prefix, *command]

    def headrace(self, folder: pathlib.Path) -> Peer:
        """Our C++ interface."""
        where = folder / f"headrace-{self.name}"
        program = str(comm_peers.PROGRAM)
        commands = [self.at(rank, [program, "tcp", str(where), str(rank), "2"]) for rank in (0, 1)]
        return Peer("headrace", commands, where, 2)

    def open_mpi(self, folder: pathlib.Path) -> Peer:
        """Open MPI over its TCP, free to run on any core: bound, both ranks share the first one."""
        launcher, program = comm_peers.open_mpi_program(folder)
        where = folder / f"openmpi-{self.name}"
        command = [launcher, "--allow-run-as-root", "-np", "2", "--bind-to", "none"]
        command += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
        if self.hosts:
            agent = folder / "agent.sh"
            others = {ADDRESSES[1]: self.hosts[1], ADDRESSES[0]: self.hosts[0]}
            cases = "".join(f"{address}) host={host};;\n" for address, host in others.items())
            agent.write_text(
                f'#!/bin/sh\ncase "$1" in\n{cases}esac\nshift\n'
                'exec ip netns exec "$host" sh -c "$*"\n'
            )
            agent.chmod(0o755)
            net = f"{ADDRESSES[0]}/24"
            command += ["--mca", "plm_rsh_agent", str(agent), "--host", ",".join(ADDRESSES)]
            command += ["--mca", "btl_tcp_if_include", net, "--mca", "oob_tcp_if_include", net]
        return Peer("Open MPI", [self.at(0, [*command, program, str(where)])], where, 2)

    def gloo(self, folder: pathlib.Path, python: str | None) -> Peer:
        """torch.distributed with gloo."""
        if python is None:
            raise CannotDoIt("no Python with torch; run `make .venv-reference/.done`")
        where = folder / f"gloo-{self.name}"
        worker = str(ROOT / "benchmarks" / "comm_torch_worker.py")
        commands = [
            self.at(rank, [python, worker, "gloo", str(where), str(rank), "2"]) for rank in (0, 1)
        ]
        return Peer("torch gloo", commands, where, 2, {"GLOO_SOCKET_IFNAME": self.interface})


@contextlib.contextmanager
def two_hosts() -> Iterator[Place]:
    """Two network namespaces and a cable between them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise CannotDoIt("network namespaces need root and the program ip")
    hosts = [f"hrbench{os.getpid()}{end}" for end in "ab"]
    try:
        for host in hosts:
            ip("netns", "add", host)
        ip("link", "add", "net0", "netns", hosts[0], "type", "veth",
           "peer", "name", "net0", "netns", hosts[1])  # fmt: skip
        for host, address in zip(hosts, ADDRESSES, strict=True):
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "net0")
            ip("-n", host, "link", "set", "net0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield Place("hosts", "net0", hosts)
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)


def iperf_bytes_per_second(place: Place, seconds: int) -> float:
    """What one connection carries in each direction when both are used at once."""
    if shutil.which("iperf3") is None:
        raise CannotDoIt("iperf3 is not installed; run `tools/apt.sh bench`")
    server = subprocess.Popen(
        place.at(1, ["iperf3", "--server", "--one-off"]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = ["iperf3", "--client", ADDRESSES[1], "--bidir", "--json", "--time", str(seconds)]
    try:
        end = time.monotonic() + 10
        while True:
            done = subprocess.run(
                place.at(0, client), capture_output=True, text=True, timeout=60, check=False
            )
            if done.returncode == 0 or time.monotonic() > end:
                break
            time.sleep(0.1)  # it does not listen yet
    finally:
        server.kill()
        server.wait()
    if done.returncode != 0:
        raise CannotDoIt(f"iperf3: {done.stdout[-300:]}")
    ends = json.loads(done.stdout)["end"]
    sums = (ends["sum_received"], ends["sum_received_bidir_reverse"])
    return min(float(one["bits_per_second"]) for one in sums) / 8


def measure(run: Run, place: Place, cases: Sequence[Case], title: str) -> None:
    """All cases with all peers that can be started there."""
    makers: dict[str, Callable[[], Peer]] = {
        "headrace": lambda: place.headrace(run.folder),
        "Open MPI": lambda: place.open_mpi(run.folder),
        "torch gloo": lambda: place.gloo(run.folder, run.python),
    }
    with run.peers(makers) as peers:
        for case in cases:
            command = f"time {case.kind} {case.dtype} {case.size} {{times}}"
            names = ["headrace", *case.goals]
            sides = {name: Side(peers[name], command) for name in names if name in peers}
            run.add_case(f"{title}, {case.name}", case, sides)
        if place.hosts:
            share_of_iperf(run, place, peers["headrace"])


def share_of_iperf(run: Run, place: Place, ours: Peer) -> None:
    """Bytes that an all-reduce moves each way per second, as a share of what iperf3 does."""
    name = "two hosts, all-reduce 64 MiB, bytes a second / iperf3 both ways"
    size = 64 * MIB
    shares, rates = [], []
    try:
        for _ in range(1 if run.quick else 3):
            limit = iperf_bytes_per_second(place, 1 if run.quick else 2)
            batch = ours.ask(f"time all_reduce f32 {size} 10")
            rates.append(size * 10 / batch.wall)
            shares.append(rates[-1] / limit)
    except (CannotDoIt, subprocess.TimeoutExpired) as error:
        run.cannot(name, str(error))
        return
    note = f"{statistics.median(rates) / 1e9:.2f} GB/s each way"
    run.figures.add(name, statistics.median(shares), unit="x", note=note)


def main() -> int:
    """Peers that are not there have rows that say so."""
    parser = argument_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="two batches each: does it work?")
    options = parser.parse_args()
    python = comm_peers.torch_python(options.reference_python)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(pathlib.Path(folder), python, options.quick)
        measure(run, Place("loopback", "lo"), LOOPBACK, "loopback")
        try:
            with two_hosts() as place:
                measure(run, place, TWO_HOSTS, "two hosts")
        except CannotDoIt as error:
            run.cannot("two hosts", str(error))
        for name, why in run.missing.items():
            print(f"{name}: {why}", file=sys.stderr)
    run.figures.add(
        "rounds that other work on the machine disturbed",
        100 * run.disturbed / max(run.rounds, 1),
        unit="%",
        note=f"load of the machine at the beginning {load:.2f}",
    )
    return run.figures.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
