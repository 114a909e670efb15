# SPDX-License-Identifier: Apache-2.0
"""What ranks count and keep of their collectives, and where one gets to see it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import headrace
from conftest import STARTED, wait_for
from headrace import metrics

LONG = 120.0


def script(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def launch(
    binary: Path,
    ranks: int,
    text: str,
    folder: Path | None = None,
    cwd: Path | None = None,
    options: tuple[str, ...] = (),
) -> subprocess.Popen[str]:
    """`headrace run` of a script, with the folder of the flight recorder."""
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_COMM_FLIGHT_DIR"}
    if folder is not None:
        environment["HEADRACE_COMM_FLIGHT_DIR"] = str(folder)
    process = subprocess.Popen(
        [str(binary), "run", "-np", str(ranks), *options, *script(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=cwd,
    )
    STARTED.append(process)
    return process


def printed(process: subprocess.Popen[str]) -> list[str]:
    """Lines of a job that must end well, without the rank in front."""
    out, err = process.communicate(timeout=LONG)
    assert process.returncode == 0, err
    return [line.split("<stdout>:", 1)[1] for line in out.splitlines()]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def named(record: dict[str, Any]) -> dict[str, Any]:
    """The set of named operations that was made first."""
    found: dict[str, Any] = next(one for one in record["sets"] if one["mode"] == "named")
    return found


def test_counters_of_a_job(headrace_binary: Path) -> None:
    lines = printed(
        launch(
            headrace_binary,
            2,
            """
            import json, time
            import numpy
            import headrace
            from headrace import metrics
            headrace.init()
            for turn in range(5):
                if turn == 3 and headrace.rank() == 1:
                    time.sleep(0.3)
                headrace.allreduce(numpy.ones(1000, numpy.float32), name=f"x{turn}")
            headrace.broadcast(numpy.ones(10), root_rank=1)
            found = metrics.snapshot()
            headrace.shutdown()
            later = metrics.snapshot()
            assert later["comm.ops{op=\\"all_reduce\\"}"] == 5
            print(json.dumps([headrace.__version__, found]))
            """,
        )
    )
    assert len(lines) == 2
    for line in lines:
        version, found = json.loads(line)
        assert version == headrace.__version__
        assert found['comm.ops{op="all_reduce"}'] == 5
        assert found['comm.ops{op="broadcast"}'] == 1
        assert found['comm.ops{op="negotiation"}'] > 6
        # What is negotiated is in it too, some hundred bytes a turn.
        assert 5 * 4000 < found['comm.bytes{dir="rx",transport="shm"}'] < 5 * 4000 + 20_000
        assert found['comm.bytes{dir="tx",transport="tcp"}'] == 0
        assert found["process.resident_bytes"] > 1e6
    waits = [json.loads(line)[1]['comm.wait_seconds{op="all_reduce"}'] for line in lines]
    assert max(waits) > 0
    peers = [json.loads(line)[1]['comm.peer_wait_seconds{peer="1"}'] for line in lines]
    assert max(peers) > 0


def test_a_process_that_is_no_rank_has_no_numbers() -> None:
    assert metrics.snapshot() == {}
    assert headrace.flight_record() == []


def test_boards_go_with_their_ranks(headrace_binary: Path) -> None:
    """A folder of a job is left empty, and so removed."""
    lines = printed(
        launch(
            headrace_binary,
            2,
            """
            import os
            from pathlib import Path
            import headrace
            headrace.init()
            boards = Path(f"/dev/shm/headrace-{os.getuid()}")
            mine = [str(one) for one in boards.glob(f"*/{os.getpid()}-*.board")]
            headrace.barrier()
            print(*mine)
            """,
        )
    )
    assert len(lines) == 2
    for line in lines:
        assert line.endswith(".board")
        assert not Path(line).exists()
        assert not Path(line).parent.exists()


HANGS = """
    import os, time
    import numpy
    import headrace
    headrace.init()
    headrace.allreduce(numpy.ones(10), name="first")
    print("pid", headrace.rank(), os.getpid(), flush=True)
    if headrace.rank() == 1:
        time.sleep(1000)
    headrace.allreduce(numpy.ones(3, numpy.int32), name="second", op=headrace.Sum)
"""


def pids(process: subprocess.Popen[str], ranks: int) -> dict[int, int]:
    found = {}
    assert process.stdout is not None
    while len(found) < ranks:
        line = process.stdout.readline()
        assert line, "the job has ended"
        _, rank, pid = line.split("<stdout>:", 1)[1].split()
        found[int(rank)] = int(pid)
    return found


def test_sigusr2_tells_what_a_rank_waits_for(headrace_binary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    process = launch(headrace_binary, 2, HANGS, folder)
    ranks = pids(process, 2)

    def waits() -> bool:
        # It has submitted by then for sure only once it says so.
        before = len(records(folder))
        os.kill(ranks[0], signal.SIGUSR2)
        wait_for("a file", lambda: len(records(folder)) > before)
        newest = max(records(folder), key=lambda one: int(one["now_us"]))
        last = named(newest)["operations"][-1]
        return bool(last["name"] == "allreduce.second" and "waits_for" in last)

    wait_for("the rank to wait", waits)
    record = max(records(folder), key=lambda one: int(one["now_us"]))
    assert record["reason"] == "SIGUSR2"
    assert (record["rank"], record["world_size"], record["pid"]) == (0, 2, ranks[0])
    first, last = named(record)["operations"][-2:]
    assert (first["name"], first["state"]) == ("allreduce.first", "done")
    assert first["submit_us"] <= first["start_us"] <= first["end_us"]
    assert (last["kind"], last["op"], last["dtype"]) == ("allreduce", "sum", "int32")
    assert (last["state"], last["bytes"], last["waits_for"]) == ("queued", 12, 1)
    assert last["end_us"] is None
    os.kill(ranks[1], signal.SIGKILL)
    process.communicate(timeout=LONG)


def test_sigusr2_without_a_folder_writes_where_the_rank_is(
    headrace_binary: Path, tmp_path: Path
) -> None:
    process = launch(headrace_binary, 2, HANGS, cwd=tmp_path)
    ranks = pids(process, 2)
    process.send_signal(signal.SIGUSR2)  # to the launcher, which has nothing to tell and goes on
    os.kill(ranks[1], signal.SIGUSR2)
    wait_for("a file", lambda: len(records(tmp_path)) == 1)
    assert records(tmp_path)[0]["rank"] == 1
    os.kill(ranks[1], signal.SIGKILL)
    _, err = process.communicate(timeout=LONG)
    assert str(tmp_path / "headrace-flight-rank1") in err
    assert len(records(tmp_path)) == 1  # a failure alone writes nothing


def test_survivors_write_who_was_killed(headrace_binary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "flights"
    process = launch(headrace_binary, 3, HANGS, folder)
    ranks = pids(process, 3)
    os.kill(ranks[1], signal.SIGKILL)
    process.communicate(timeout=LONG)
    assert process.returncode != 0
    found = {record["rank"]: record for record in records(folder)}
    assert sorted(found) == [0, 2]
    for record in found.values():
        assert record["reason"].startswith("failure: ")
        for one in record["sets"]:
            if one["mode"] == "ordered":
                assert one["failure"]["code"] == "peer_dead"
                assert one["failure"]["rank"] == 1
                assert f"process {ranks[1]}" in one["failure"]["message"]


def test_the_launcher_keeps_what_ranks_have_counted(headrace_binary: Path, tmp_path: Path) -> None:
    process = launch(
        headrace_binary,
        2,
        """
        import os, signal
        import numpy
        import headrace
        headrace.init()
        for turn in range(7):
            headrace.allreduce(numpy.ones(10), name="x")
        if headrace.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        headrace.barrier()
        """,
        options=("--output-filename", str(tmp_path / "out")),
    )
    process.communicate(timeout=LONG)
    assert process.returncode != 0
    for rank in range(2):  # the killed one too
        kept = json.loads((tmp_path / "out" / f"rank.{rank}" / "metrics.json").read_text())
        assert kept['comm.ops{op="all_reduce"}'] == 7
