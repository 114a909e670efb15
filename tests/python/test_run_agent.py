# SPDX-License-Identifier: Apache-2.0
"""`headrace agent`: two hosts as network namespaces, without ssh."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import running_with, wait_for

LONG = 120.0


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=LONG)


@dataclass
class Hosts:
    """Two namespaces with a wire between them."""

    binary: Path
    folder: Path
    names: list[str]
    addresses: list[str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def token(self) -> Path:
        path = self.folder / "token"
        if not path.exists():
            path.touch(0o600)
            path.write_bytes(os.urandom(32))
        return path

    def start(self, host: int, *words: str, **options: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[host], str(self.binary), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        self.started.append(process)
        return process

    def agent(self, *words: str, token: Path | None = None) -> subprocess.Popen[str]:
        process = self.start(1, "agent", "--token-file", str(token or self.token), *words)
        assert process.stdout is not None
        assert "listening at" in process.stdout.readline()
        return process

    def launch(self, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
        process = self.start(0, "run", "--agent-token-file", str(self.token), *words, **options)
        out, err = process.communicate(timeout=LONG)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def both(self) -> str:
        return f"{self.addresses[0]}:2,{self.addresses[1]}:2"


@pytest.fixture
def hosts(headrace_binary: Path, tmp_path: Path) -> Iterator[Hosts]:
    if shutil.which("ip") is None:
        pytest.skip("no program ip (iproute2) here")
    names = [f"hr-agent-{os.getpid()}-{i}" for i in range(2)]
    made = ip("netns", "add", names[0])
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    both = Hosts(headrace_binary, tmp_path, names, ["10.77.5.1", "10.77.5.2"])
    try:
        ip("netns", "add", names[1])
        links = [f"hra{os.getpid()}", f"hrb{os.getpid()}"]
        wire = ip("link", "add", links[0], "netns", names[0], "type", "veth",
                  "peer", "name", links[1], "netns", names[1])  # fmt: skip
        if wire.returncode != 0:
            pytest.skip(f"no virtual wires (veth) here: {wire.stderr.strip()}")
        for name, link, address in zip(names, links, both.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", link, "up")
        yield both
    finally:
        for process in both.started:
            process.kill()
            process.communicate()
        for name in names:
            ip("netns", "del", name)


def test_ranks_of_two_hosts_are_one_job(hosts: Hosts, tmp_path: Path) -> None:
    hosts.agent()
    done = hosts.launch(
        "-H", hosts.both(), "sh", "-c",
        "echo $RANK/$WORLD_SIZE $LOCAL_RANK $HOROVOD_CROSS_RANK $HEADRACE_HOSTNAME $MINE "
        "$MASTER_ADDR $(pwd) $(hostname -I); md5sum < $HEADRACE_SECRET_FILE >&2",
        env={**os.environ, "MINE": "a b"}, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    a, b = hosts.addresses
    assert sorted(done.stdout.splitlines()) == [
        f"[0]<stdout>:0/4 0 0 {a} a b 127.0.0.1 {tmp_path} {a}",
        f"[1]<stdout>:1/4 1 0 {a} a b 127.0.0.1 {tmp_path} {a}",
        f"[2]<stdout>:2/4 0 1 {b} a b {a} {tmp_path} {b}",
        f"[3]<stdout>:3/4 1 1 {b} a b {a} {tmp_path} {b}",
    ]
    sums = {line.split(":", 1)[1] for line in done.stderr.splitlines() if "<stderr>" in line}
    assert len(sums) == 1, "the hosts have different secrets"


def test_rank_zero_may_be_on_the_other_host(hosts: Hosts) -> None:
    hosts.agent()
    a, b = hosts.addresses
    done = hosts.launch("-H", f"{b}:1,{a}:1", "sh", "-c", "echo $RANK $MASTER_ADDR; sleep 0.1")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[0]<stdout>:0 {b}", f"[1]<stdout>:1 {b}"]


def test_ranks_of_two_hosts_reach_the_store(hosts: Hosts) -> None:
    hosts.agent()
    script = (
        "from headrace import _native\n"
        "import os\n"
        "store = _native.comm.JobStore.open()\n"
        "store.set('k' + os.environ['RANK'], b'x')\n"
        "[store.get(f'k{rank}') for rank in range(4)]\n"
        "print('met')\n"
    )
    done = hosts.launch("-H", hosts.both(), sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("met") == 4


def test_a_rank_that_fails_on_the_other_host_ends_all(hosts: Hosts) -> None:
    hosts.agent()
    mark = f"MARK=fails-{os.getpid()}"
    done = hosts.launch(
        "-H", hosts.both(), "sh", "-c", "[ $RANK = 3 ] && { echo why >&2; exit 7; }; sleep 1000",
        env={**os.environ, "MARK": mark.split("=")[1]},
    )  # fmt: skip
    assert done.returncode == 1
    assert f"rank 3 on {hosts.addresses[1]}" in done.stderr
    assert "exit code 7" in done.stderr
    assert done.stderr.rstrip().endswith("why")
    wait_for("the end of the ranks", lambda: not running_with(mark))


@pytest.mark.parametrize("who", ["agent", "launcher"])
def test_no_rank_outlives_launcher_or_agent(hosts: Hosts, who: str) -> None:
    agent = hosts.agent()
    mark = f"MARK=outlives-{who}-{os.getpid()}"
    job = hosts.start(
        0, "run", "--agent-token-file", str(hosts.token), "-H", hosts.both(),
        "sh", "-c", "trap '' TERM; sleep 1000 & echo ready; wait; sleep 1000",
        env={**os.environ, "MARK": mark.split("=")[1]},
    )  # fmt: skip
    assert job.stdout is not None
    for _ in range(4):
        assert "ready" in job.stdout.readline()
    if who == "agent":
        agent.kill()
        _, err = job.communicate(timeout=LONG)
        assert job.returncode == 1
        assert f"host {hosts.addresses[1]}" in err
    else:
        job.kill()
        job.communicate(timeout=LONG)
    wait_for("the end of the ranks", lambda: not running_with(mark))


@pytest.mark.slow
def test_a_cut_wire_ends_the_ranks_on_both_sides(hosts: Hosts) -> None:
    hosts.agent()
    mark = f"MARK=cut-{os.getpid()}"
    job = hosts.start(
        0, "run", "--agent-token-file", str(hosts.token), "-H", hosts.both(),
        "sh", "-c", "echo ready; exec sleep 1000", env={**os.environ, "MARK": mark.split("=")[1]},
    )  # fmt: skip
    assert job.stdout is not None
    for _ in range(4):
        assert "ready" in job.stdout.readline()
    ip("-n", hosts.names[0], "link", "set", f"hra{os.getpid()}", "down")
    _, err = job.communicate(timeout=LONG)
    assert job.returncode == 1
    assert f"host {hosts.addresses[1]}" in err
    wait_for("the end of the ranks", lambda: not running_with(mark))


def test_an_agent_that_is_stopped_says_so(hosts: Hosts) -> None:
    agent = hosts.agent()
    job = hosts.start(
        0, "run", "--agent-token-file", str(hosts.token), "-H", hosts.both(),
        "sh", "-c", "echo ready; exec sleep 1000",
    )  # fmt: skip
    assert job.stdout is not None
    for _ in range(4):
        job.stdout.readline()
    agent.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=LONG)
    assert job.returncode == 1
    assert "was stopped" in err
    agent.communicate(timeout=LONG)
    assert agent.returncode == 130


def test_another_token_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch(0o600)
    other.write_bytes(os.urandom(32))
    hosts.agent(token=other)
    done = hosts.launch("-H", hosts.both(), "--start-timeout", "5", "true")
    assert done.returncode == 1
    assert f"no agent to work with on {hosts.addresses[1]}" in done.stderr
    assert "secret" in done.stderr


def test_a_host_without_an_agent_is_named(hosts: Hosts) -> None:
    done = hosts.launch("-H", hosts.both(), "--start-timeout", "1", "true")
    assert done.returncode == 1
    assert f"no agent to work with on {hosts.addresses[1]}" in done.stderr
    assert "headrace agent" in done.stderr


def test_other_hosts_need_a_token(headrace_binary: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_AGENT_TOKEN_FILE"}
    done = subprocess.run(
        [str(headrace_binary), "run", "-H", "192.0.2.1:1", "true"],
        capture_output=True, text=True, timeout=LONG, env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--agent-token-file" in done.stderr


def test_a_program_that_the_other_host_lacks(hosts: Hosts) -> None:
    hosts.agent()
    done = hosts.launch("-H", f"{hosts.addresses[1]}:1", "no-such-program")
    assert done.returncode == 1
    assert re.search(r'host .*no program "no-such-program"', done.stderr)


def test_much_output_of_the_other_host_comes_whole(hosts: Hosts) -> None:
    hosts.agent()
    job = hosts.start(
        0, "run", "--agent-token-file", str(hosts.token), "-H", f"{hosts.addresses[1]}:2",
        "seq", "700000",
    )  # fmt: skip
    assert job.stdout is not None
    first = job.stdout.readline()
    time.sleep(1.0)  # a reader that is slow: the agent must not give up on it
    lines = (first + job.stdout.read()).splitlines()
    assert job.wait(LONG) == 0
    for rank in range(2):
        prefix = f"[{rank}]<stdout>:"
        own = [int(line[len(prefix) :]) for line in lines if line.startswith(prefix)]
        assert own == list(range(1, 700001))


def test_once_means_one_launcher(hosts: Hosts) -> None:
    agent = hosts.agent("--once")
    assert hosts.launch("-H", f"{hosts.addresses[1]}:1", "true").returncode == 0
    _, err = agent.communicate(timeout=LONG)
    assert agent.returncode == 0, err


def test_ssh_starts_an_agent_where_it_is_asked_for(hosts: Hosts, tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    # What ssh does with the command, without the network: a shell on the other host.
    fake.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/words\n'
        'while [ "$1" != -- ]; do shift; done\n'
        f'exec ip netns exec {hosts.names[1]} sh -c "$3"\n'
    )
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    job = hosts.start(
        0, "run", "-p", "2222", "-i", "key", "-H", hosts.both(), "sh", "-c", "echo $(hostname -I)",
        env=environment,
    )  # fmt: skip
    out, err = job.communicate(timeout=LONG)
    assert job.returncode == 0, err
    a, b = hosts.addresses
    assert sorted(out.splitlines()) == [
        f"[{rank}]<stdout>:{a if rank < 2 else b}" for rank in range(4)
    ]
    assert f"-p 2222 -i key -- {b} " in (tmp_path / "words").read_text()
    wait_for("the end of the agent", lambda: not running_with(f"PATH={environment['PATH']}"))

    fake.write_text("#!/bin/sh\necho no route >&2; exit 255\n")
    job = hosts.start(0, "run", "--ssh", "-H", f"{b}:1", "true", env=environment)
    _, err = job.communicate(timeout=LONG)
    assert job.returncode == 1
    assert f"no agent to work with on {b}" in err
    assert "no route" in err
