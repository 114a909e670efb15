# SPDX-License-Identifier: Apache-2.0
"""`headrace.run`: a function on the ranks of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import headrace
from headrace.runner import RemoteError
from headrace.runner import run as runner_run

LONG = 120.0


def test_results_come_in_the_order_of_the_ranks() -> None:
    offset = 5

    def function(factor: int, extra: int = 0) -> int:
        return int(os.environ["HOROVOD_RANK"]) * factor + offset + extra

    assert headrace.run(function, (10,), {"extra": 1}, num_proc=3) == [6, 16, 26]
    assert runner_run(lambda: "alone") == ["alone"]


def test_ranks_meet() -> None:
    def function() -> tuple[int, int, int]:
        from headrace import _native

        sizes = []
        for _ in range(3):
            context, place = _native.comm.join()
            context.world.barrier()
            sizes.append((place.rank, place.size, place.local_size))
            del context
        assert len(set(sizes)) == 1
        return sizes[0]

    assert headrace.run(function, num_proc=2) == [(0, 2, 2), (1, 2, 2)]


def test_some_ranks_form_a_world_of_their_own() -> None:
    def function() -> tuple[int, int]:
        from headrace import _native

        rank = int(os.environ["HOROVOD_RANK"])
        if rank == 1:
            with pytest.raises(headrace.InvalidArgument, match="rank 1 is not among"):
                _native.comm.join(ranks=[0, 2])
            return (-1, -1)
        context, place = _native.comm.join(ranks=[0, 2])
        context.world.barrier()
        return (place.rank, place.size)

    assert headrace.run(function, num_proc=3) == [(0, 2), (-1, -1), (1, 2)]


def test_large_values_come_through() -> None:
    value = os.urandom(20 << 20)
    assert headrace.run(lambda given: given[::-1], (value,), num_proc=2) == [value[::-1]] * 2


def test_the_exception_of_a_rank_is_the_cause() -> None:
    def function() -> None:
        if os.environ["RANK"] == "1":
            raise ValueError("no good")
        time.sleep(1000)

    with pytest.raises(RuntimeError, match=r"^Horovod detected that one or more processes") as info:
        headrace.run(function, num_proc=2)
    cause = info.value.__cause__
    assert isinstance(cause, RemoteError)
    assert (cause.rank, cause.kind) == (1, "ValueError")
    assert cause.traceback.rstrip().endswith("ValueError: no good")


def test_the_exception_of_a_rank_is_told_to_those_that_wait_for_it(tmp_path: Path) -> None:
    def function(path: str) -> None:
        import numpy as np

        headrace.init()
        if headrace.rank() == 1:
            raise ValueError("no column price")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which the launcher sends soon
        try:
            headrace.allreduce(np.ones(3), name="never")
        except headrace.HorovodInternalError as error:
            Path(path).write_text(str(error))

    with pytest.raises(RuntimeError):
        headrace.run(function, (str(tmp_path / "told"),), num_proc=2)
    assert "ValueError: no column price" in (tmp_path / "told").read_text()


def test_a_rank_that_is_killed_has_no_cause() -> None:
    with pytest.raises(RuntimeError, match="SIGKILL") as info:
        headrace.run(lambda: os.kill(os.getpid(), signal.SIGKILL), num_proc=2)
    assert info.value.__cause__ is None


def test_output_comes_to_our_streams(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    headrace.run(lambda: print("hello"), num_proc=2, output_filename=str(tmp_path))
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[0]<stdout>:hello",
        "[1]<stdout>:hello",
    ]
    assert (tmp_path / "rank.1" / "stdout").read_text() == "hello\n"


def test_arguments_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="hosts and hostfile"):
        headrace.run(print, hosts="localhost:1", hostfile="f")
    with pytest.raises(ValueError, match="use_gloo and use_mpi"):
        headrace.run(print, use_gloo=True, use_mpi=True)
    with pytest.raises(headrace.Unsupported, match="elastic"):
        headrace.run(print, num_proc=2, min_num_proc=1)
    with pytest.warns(DeprecationWarning, match="np is deprecated"):
        assert headrace.run(lambda: 1, np=2) == [1, 1]
    with pytest.raises(RuntimeError, match="exit code 2"):
        headrace.run(print, num_proc=3, hosts="localhost:2")


def test_the_launcher_does_not_outlive_its_caller(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, time, headrace
        def function(path):
            import os
            open(path + os.environ["RANK"], "w").write(str(os.getpid()))
            time.sleep(1000)
        headrace.run(function, (sys.argv[1],), num_proc=2)
    """)
    file = tmp_path / "script.py"
    file.write_text(script)
    pid_files = [tmp_path / f"pid{rank}" for rank in range(2)]
    caller = subprocess.Popen([sys.executable, str(file), str(tmp_path / "pid")])
    deadline = time.monotonic() + LONG
    while not all(path.exists() and path.read_text() for path in pid_files):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    caller.kill()
    caller.wait(LONG)
    for path in pid_files:
        while Path(f"/proc/{path.read_text()}").exists():
            assert time.monotonic() < deadline, "a rank is still there"
            time.sleep(0.02)
