# SPDX-License-Identifier: Apache-2.0
"""Hosts without hosts: ranks in network namespaces of their own, joined by a bridge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("comm_rank.py")
HOSTS = "abc"


def ip(*arguments: str) -> None:
    ended = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"ip {' '.join(arguments)}: {ended.stderr}"


class Network:
    """Three hosts and a switch between them."""

    def __init__(self) -> None:
        self.name = f"hr{os.getpid()}"
        self.switch = f"{self.name}-switch"
        self.ranks: list[subprocess.Popen[str]] = []

    def host(self, host: str) -> str:
        return f"{self.name}-{host}"

    def plug(self, host: str) -> str:
        return f"{self.name}{host}"[-15:]

    def build(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for number, host in enumerate(HOSTS, 1):
            ip("netns", "add", self.host(host))
            ip("link", "add", "net0", "netns", self.host(host), "type", "veth",
               "peer", "name", self.plug(host), "netns", self.switch)  # fmt: skip
            ip("-n", self.switch, "link", "set", self.plug(host), "master", "bridge")
            ip("-n", self.switch, "link", "set", self.plug(host), "up")
            ip("-n", self.host(host), "addr", "add", f"10.91.7.{number}/24", "dev", "net0")
            ip("-n", self.host(host), "link", "set", "net0", "up")
            ip("-n", self.host(host), "link", "set", "lo", "up")

    def cut(self, host: str) -> None:
        ip("-n", self.switch, "link", "set", self.plug(host), "down")

    def join(self, host: str) -> None:
        ip("-n", self.switch, "link", "set", self.plug(host), "up")

    def start(
        self, case: str, folder: Path, settings: dict[str, str] | None = None, per_host: int = 1
    ) -> None:
        hosts = [host for host in HOSTS for _ in range(per_host)]
        for rank, host in enumerate(hosts):
            command = ["ip", "netns", "exec", self.host(host), "unshare", "--uts", "sh", "-c",
                       f"hostname host-{host}; exec \"$@\"", "sh", sys.executable, str(WORKER),
                       case, str(rank), str(len(hosts)), str(folder)]  # fmt: skip
            self.ranks.append(
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **(settings or {})},
                )
            )

    def by_rank(self) -> list[dict[str, object]]:
        out = []
        for rank, process in enumerate(self.ranks):
            said, errors = process.communicate(timeout=60)
            assert said, f"rank {rank}: {errors}"
            out.append(json.loads(said))
        return out

    def results(self, of: str = HOSTS) -> dict[str, dict[str, object]]:
        out = {}
        for host in of:
            said, errors = self.ranks[HOSTS.index(host)].communicate(timeout=60)
            assert said, f"{host}: {errors}"
            out[host] = json.loads(said)
        return out

    def remove(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        for name in [self.switch, *map(self.host, HOSTS)]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def network() -> Iterator[Network]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    one = Network()
    tried = subprocess.run(
        ["ip", "netns", "add", one.name], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"no network namespaces here: {tried.stderr.strip()}")
    subprocess.run(["ip", "netns", "del", one.name], check=True)
    try:
        one.build()
        yield one
    finally:
        one.remove()


def wait_ready(folder: Path) -> None:
    end = time.monotonic() + 60
    while not all((folder / f"ready-{rank}").exists() for rank in range(len(HOSTS))):
        assert time.monotonic() < end, "the ranks did not meet"
        time.sleep(0.01)


def test_ranks_on_several_hosts_reduce(network: Network, tmp_path: Path) -> None:
    network.start("reduce", tmp_path)
    assert network.results() == {host: {"sum": 6.0, "last": 6.0} for host in HOSTS}


def test_ranks_listen_at_the_ports_and_open_the_streams_that_are_set(
    network: Network, tmp_path: Path
) -> None:
    streams = 3
    network.start(
        "sockets",
        tmp_path,
        {
            "HEADRACE_COMM_PORT_RANGE": "41000-41003",
            "HEADRACE_COMM_STREAMS": str(streams),
            "HEADRACE_COMM_CRC": "1",
        },
    )
    connections = (len(HOSTS) - 1) * (1 + streams)  # one is for control
    assert network.by_rank() == [
        {"sum": 6.0, "listens": [41000 + rank], "connections": connections}
        for rank in range(len(HOSTS))
    ]


def test_hosts_with_several_ranks_move_what_they_should(network: Network, tmp_path: Path) -> None:
    network.start("kinds", tmp_path, per_host=2)
    assert network.by_rank() == [{"wrong": []}] * (2 * len(HOSTS))


def test_a_host_that_is_cut_off_is_named_to_all_others(network: Network, tmp_path: Path) -> None:
    network.start("loop", tmp_path)
    wait_ready(tmp_path)

    network.cut("c")

    ended = network.results()
    for host in "ab":
        assert ended[host]["type"] == "PeerDead"
        assert "rank 2 on host-c" in str(ended[host]["error"])
    assert ended["c"]["type"] == "PeerDead"


def test_a_rank_that_died_behind_a_cut_cable_is_named_when_it_is_back(
    network: Network, tmp_path: Path
) -> None:
    network.start("loop", tmp_path)
    wait_ready(tmp_path)

    network.cut("c")  # its end reaches nobody: the others' connections are half open
    network.ranks[2].kill()
    network.join("c")

    for ended in network.results("ab").values():
        assert ended["type"] == "PeerDead"
        assert "rank 2 on host-c" in str(ended["error"])
