# SPDX-License-Identifier: Apache-2.0
"""Strangers at every port that a job of two hosts has open: no effect on it, few lines about it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

from conftest import ROOT, running_with, wait_for
from test_run_agent import LONG, Hosts, hosts  # noqa: F401

LISTENS = "0A"
LINES_OF_A_PORT = 40  # that strangers may cause, 560 of them at each

RANK = """
    import itertools, os, sys
    import numpy as np
    import headrace
    for cycle in itertools.count():
        headrace.init()
        for step in range(20):
            out = headrace.allreduce(np.ones(30_000), name=f"x{step}")
            assert out[-1] == 1.0
        go = headrace.broadcast(np.array([os.path.exists(sys.argv[1])]), 0, name="go")
        if cycle == 3:
            print("begun", flush=True)
        if go[0]:
            break
        if cycle < 3:  # then it stays, with all its ports
            headrace.shutdown()
    print("done", headrace.size())
"""


def listening_ports(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports where a process takes TCP connections."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            link = os.readlink(entry)
        except OSError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    found = set()
    for table, any_address in (("tcp", "00000000"), ("tcp6", "0" * 32)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and words[9] in inodes:
                address, port = words[1].split(":")
                loopback = address.endswith(("0100007F", "01000000"))
                found.add((any_address if not loopback else "loopback", int(port, 16)))
    return found


def children_of(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def test_strangers_at_every_port_of_a_job(hosts: Hosts, tmp_path: Path) -> None:  # noqa: F811
    agent = hosts.agent()
    go = tmp_path / "go"
    mark = f"HEADRACE_TEST_MARK={os.getpid()}"
    variables = {
        **os.environ, "PYTHONPATH": str(ROOT / "python"), "HEADRACE_COMM_TRANSPORT": "tcp",
    }  # fmt: skip
    variables.update([mark.split("=")])
    job = hosts.start(
        0, "run", "--agent-token-file", str(hosts.token), "-H", hosts.both(),
        sys.executable, "-c", textwrap.dedent(RANK), str(go), env=variables,
    )  # fmt: skip
    assert job.stdout is not None
    for _ in range(4):
        line = job.stdout.readline()
        assert line.endswith("begun\n"), line + job.communicate()[1]
    wait_for("all ranks", lambda: len(running_with(mark)) >= 4)

    # By host: the namespace is that of the launcher, or of the agent.
    ports: list[set[tuple[str, int]]] = [set(), set()]
    for host, process in enumerate((job, agent)):
        for pid in children_of(process.pid):
            ports[host] |= listening_ports(pid)
    assert len(ports[0]) >= 3, "the store and two ranks"
    assert len(ports[1]) >= 3, "the agent and two ranks"

    strangers = []
    for host, of_host in enumerate(ports):
        address = hosts.addresses[host]
        words = [f"{'127.0.0.1' if at == 'loopback' else address}:{port}" for at, port in of_host]
        strangers.append(
            subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    hosts.names[host],
                    sys.executable,
                    str(Path(__file__).with_name("stranger.py")),
                    *words,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    hosts.started += strangers
    for one in strangers:
        assert one.stdout is not None
        assert one.stdout.readline() == "all are here\n"

    # With strangers at all doors: another launcher comes in, and the job ends well.
    second = hosts.launch("-H", hosts.both(), "echo", "hello")
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("hello") == 4
    go.touch()
    out, errors = job.communicate(timeout=LONG)
    assert job.returncode == 0, errors
    assert out.count("done 4") == 4
    agent.terminate()
    said = agent.communicate(timeout=LONG)[1]
    lines = errors.splitlines() + said.splitlines()
    most = LINES_OF_A_PORT * sum(map(len, ports))
    assert 0 < len(lines) < most, Counter(line[:60] for line in lines)
