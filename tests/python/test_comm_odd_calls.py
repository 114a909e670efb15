# SPDX-License-Identifier: Apache-2.0
"""What a user may hand to collectives by mistake, and threads, names and ends of all kinds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conftest import ROOT, STARTED, running_with, wait_for

LONG = 120.0
SEED = 20261

BEGIN = """
    import os, threading, time
    import numpy as np
    import headrace

    def refused(call, *words):
        try:
            call()
        except (ValueError, TypeError) as error:
            assert all(word in str(error) for word in words), error
            assert len(str(error)) < 3000, len(str(error))
            return
        raise AssertionError(words)

    headrace.init()
    rank, size = headrace.rank(), headrace.size()
    def ones(array, **options):
        out = headrace.allreduce(array, **options)
        assert np.all(out == array), out
"""

VALUES = """
    struct = np.zeros(2, [("a", "f4")])
    for wrong in (None, "abc", np.array([object()]), np.array(["x"]), struct, np.ones(2, ">f4"),
                  np.zeros(2, "M8[s]"), [[1], [1, 2]], np.ones(2, np.longdouble)):
        refused(lambda: headrace.allreduce(wrong, name="wrong"))
    # Refused on rank 1 alone, and nobody else is harmed.
    if rank == 1:
        refused(lambda: headrace.alltoall(np.ones(4), splits=[-1, 5]), "negative")
        refused(lambda: headrace.alltoall(np.ones(4), splits=[2**63, 2]), "greater")
        refused(lambda: headrace.broadcast(np.ones(2), -1), "-1")
        refused(lambda: headrace.allreduce(np.ones(2), op=99), "99")
        refused(lambda: headrace.allreduce(np.ones(2), name="n" * 1_000_000), "65536 bytes")
    still = np.ones(4)
    still.flags.writeable = False
    ones(still, name="read only")
    ones(np.ones((3, 4)).T[::2], name="not contiguous")
    ones(np.ones(6)[::-1], name="backwards")
    ones(np.zeros((0, 3)), name="empty")
    ones(np.array(3.0), name="no dimension")
    ones(np.ones((1,) * 60), name="many dimensions")
    for op in (headrace.Average, headrace.Max, headrace.Adasum):
        memory = np.zeros(4 * 1000 + 1, np.uint8)[1:] if rank == 1 else np.zeros(4000, np.uint8)
        odd = memory.view(np.float32)
        odd[:] = 1.0
        ones(odd, name=f"between two elements {op}", op=op)
    for name in ("", "a\\0b", "a\\0c", "gr\u00f6\u00dfe/\uce35", "n" * 60_000, "x\\n\\x1b[2J"):
        ones(np.ones(2), name=name)
    works = [headrace.allreduce_async(np.ones(8), name=f"{i}") for i in range(10_000)]
    assert all(headrace.synchronize(work)[0] == 1.0 for work in works)
"""

THREADS = """
    headrace.shutdown()
    for _ in range(10):
        starts = [threading.Thread(target=headrace.init) for _ in range(4)]
        for one in starts: one.start()
        for one in starts: one.join()
        ends = []
        def submit(thread):
            try:
                for number in range(1_000_000):
                    name = f"{rank}" if number > 20 else f"{thread}.{number}"
                    headrace.allreduce(np.ones(3), name=name)
            except (headrace.HorovodInternalError, ValueError) as error:
                ends.append(error)
        threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(3)]
        for one in threads: one.start()
        time.sleep(0.02)
        enders = [threading.Thread(target=headrace.shutdown) for _ in range(2)]
        for one in enders: one.start()
        for one in threads + enders: one.join()
        assert len(ends) == 3
        headrace.shutdown()
"""

# With an operation that nobody will ever join in.
PENDING = """
    headrace.allreduce_async(np.ones(3), name=f"never {rank}")
"""


def launch(
    binary: Path, *scripts: str, ranks: int = 2, **variables: str
) -> subprocess.CompletedProcess[str]:
    script = "".join(map(textwrap.dedent, scripts))
    return subprocess.run(
        [str(binary), "run", "-np", str(ranks), sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables},
    )


@pytest.mark.parametrize("body", [VALUES, THREADS, PENDING], ids=["values", "threads", "pending"])
def test_ranks_end_well(headrace_binary: Path, body: str) -> None:
    done = launch(headrace_binary, BEGIN, body, 'print("done")')
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == 2
    assert "leaked" not in done.stderr


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_jobs_that_are_broken_at_random_moments(transport: str) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("comm_breaker.py")), "12", str(SEED),
         transport],
        capture_output=True, text=True, timeout=LONG, check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{Path(__file__).parent}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_jobs_beside_and_inside_one_another(headrace_binary: Path) -> None:
    inner = "import headrace; headrace.init(); headrace.barrier(); print('inner', headrace.size())"
    body = f"""
        import subprocess, sys
        ones(np.ones(3), name="before")
        told = subprocess.run(
            [{str(headrace_binary)!r}, "run", "-np", "3", sys.executable, "-c", {inner!r}],
            capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stderr
        assert told.stdout.count("inner 3") == 3, told.stdout
        ones(np.ones(3), name="after")
    """
    done = launch(headrace_binary, BEGIN, body)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_at_the_keyboard_ends_ranks_that_wait(headrace_binary: Path) -> None:
    mark = f"HEADRACE_TEST_MARK=interrupt-{os.getpid()}"
    script = textwrap.dedent(BEGIN) + textwrap.dedent("""
        print("begun", flush=True)
        if rank == 0:
            headrace.allreduce(np.ones(3), name="never")
        time.sleep(1000)
    """)
    process = subprocess.Popen(
        [str(headrace_binary), "run", "-np", "2", sys.executable, "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **dict([mark.split("=")])},
    )  # fmt: skip
    STARTED.append(process)
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline().endswith("begun\n")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LONG)
    assert process.returncode != 0
    wait_for("the end of all ranks", lambda: not running_with(mark))
