# SPDX-License-Identifier: Apache-2.0
"""What ranks print, through `headrace run`: whole lines, any bytes, files, slow readers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

LONG = 120.0


def launch(binary: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(binary), "run", *words], capture_output=True, timeout=LONG, stdin=subprocess.DEVNULL
    )


def test_progress_bars_and_any_bytes_come_through(headrace_binary: Path) -> None:
    script = r"""
import os
os.write(1, b"caf\xc3\xa9 \xff\xfe\x80\n")
os.write(2, b"\r 10%\r 20%")
os.write(2, b"\r 30%\r\nend")
"""
    done = launch(headrace_binary, "-np", "1", sys.executable, "-c", script)
    assert done.stdout == b"[0]<stdout>:caf\xc3\xa9 \xff\xfe\x80\n"
    assert done.stderr == (
        b"[0]<stderr>:\r[0]<stderr>: 10%\r[0]<stderr>: 20%\r[0]<stderr>: 30%\r\n[0]<stderr>:end\n"
    )


def test_lines_of_many_loud_ranks_stay_whole(headrace_binary: Path) -> None:
    script = """
import os, sys
rank = os.environ["RANK"]
for i in range(20000):
    sys.stdout.write(f"{rank} {i} " + "x" * (i % 300) + "\\n")
"""
    done = launch(headrace_binary, "-np", "4", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    nexts = [0, 0, 0, 0]
    line = re.compile(rb"\[(\d)\]<stdout>:(\d) (\d+) (x*)")
    for text in done.stdout.splitlines():
        match = line.fullmatch(text)
        assert match, text
        rank, i = int(match[1]), int(match[3])
        assert match[1] == match[2]
        assert i == nexts[rank]
        assert len(match[4]) == i % 300
        nexts[rank] += 1
    assert nexts == [20000] * 4


def test_both_streams_into_one_pipe_keep_their_lines(headrace_binary: Path) -> None:
    script = "for i in $(seq 2000); do echo out $i; echo err $i >&2; done"
    done = subprocess.run(
        [str(headrace_binary), "run", "-np", "2", "sh", "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONG,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 8000
    assert all(re.fullmatch(rb"\[\d\]<std(out|err)>:(out|err) \d+", one) for one in lines)


def test_a_reader_that_is_slow_loses_nothing(headrace_binary: Path) -> None:
    with subprocess.Popen(
        [str(headrace_binary), "run", "-np", "2", "sh", "-c", "seq 1000000"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        first = process.stdout.readline()
        try:
            process.wait(1.0)
            raise AssertionError("it ended, though nobody reads its output")
        except subprocess.TimeoutExpired:
            pass
        rest = process.stdout.read()
        assert process.wait(LONG) == 0
    assert (first + rest).count(b"\n") == 2_000_000


def test_a_reader_that_goes_ends_the_job(headrace_binary: Path) -> None:
    process = subprocess.Popen(
        [str(headrace_binary), "run", "-np", "2", "sh", "-c", "while :; do echo y; done"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(LONG) != 0


def test_each_rank_has_its_files(headrace_binary: Path, tmp_path: Path) -> None:
    done = launch(
        headrace_binary, "-np", "11", "--output-filename", str(tmp_path / "logs"),
        "sh", "-c", r"printf 'out %s\r\nno end' $RANK; echo err >&2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folders = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert folders == [f"rank.{rank:02}" for rank in range(11)]
    assert (tmp_path / "logs/rank.07/stdout").read_bytes() == b"out 7\r\nno end"
    assert (tmp_path / "logs/rank.07/stderr").read_bytes() == b"err\n"
    assert done.stdout.count(b"no end\n") == 11


def test_a_full_disk_under_the_files_ends_nobody(headrace_binary: Path, tmp_path: Path) -> None:
    own = ["unshare", "--mount", "sh", "-c",
           f'mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec "$@"', "sh"]  # fmt: skip
    tried = subprocess.run([*own, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no mounts of one's own here: {tried.stderr.strip()}")
    done = subprocess.run(
        [*own, str(headrace_binary), "run", "-np", "2", "--output-filename", str(tmp_path / "logs"),
         "sh", "-c", "seq 100000; echo end"],
        capture_output=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"end\n") == 2
    assert done.stdout.count(b"\n") == 200_002
    assert 1 <= done.stderr.count(b"No space left on device") <= 2


def test_lines_with_the_time(headrace_binary: Path) -> None:
    done = launch(headrace_binary, "-np", "1", "--prefix-output-with-timestamp", "echo", "x")
    stamp = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(stamp + rb"\[0\]<stdout>:x\n", done.stdout)
    done = launch(headrace_binary, "-np", "1", "-prefix-timestamp", "echo", "x")
    assert re.fullmatch(stamp + rb"\[0\]<stdout>:x\n", done.stdout)
