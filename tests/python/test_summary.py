# SPDX-License-Identifier: Apache-2.0
"""tools/test_summary.py counts what the runners wrote, and misses nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# As ctest 3.25.1 and pytest 9.2.0 write them, shortened.
CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux" tests="3" failures="1" disabled="0" skipped="1" time="1">
  <testcase name="base: a" classname="base: a" time="0.1" status="run"><system-out/></testcase>
  <testcase name="base: b" classname="base: b" time="0.1" status="fail">
    <failure message=""/><system-out/></testcase>
  <testcase name="base: c" classname="base: c" time="0" status="notrun">
    <skipped message="Disabled by CMakeLists"/></testcase>
</testsuite>
"""
PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="0" skipped="1">
<testcase classname="tests.test_a" name="test_x" time="0.01" />
<testcase classname="tests.test_a" name="test_y" time="0.01"><skipped message="no chromium" />
</testcase>
<testcase classname="tests.test_a" name="test_z" time="0.01"><error message="broken" /></testcase>
</testsuite></testsuites>
"""


def summary(source_root: Path, *files: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(source_root / "tools/test_summary.py"), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_the_last_line_sums_over_runners_and_skips_give_their_reason(
    tmp_path: Path, source_root: Path
) -> None:
    (tmp_path / "c.xml").write_text(CTEST)
    (tmp_path / "p.xml").write_text(PYTEST)

    code, lines = summary(source_root, tmp_path / "c.xml", tmp_path / "p.xml")

    assert code == 1
    assert lines[-1] == "2 passed, 2 failed, 2 skipped"
    assert "skipped: tests.test_a::test_y: no chromium" in lines
    assert "failed: base: b" in lines


def test_all_passed_is_success(tmp_path: Path, source_root: Path) -> None:
    (tmp_path / "p.xml").write_text(
        '<testsuite><testcase name="a"/><testcase name="b"/></testsuite>'
    )
    assert summary(source_root, tmp_path / "p.xml") == (0, ["2 passed, 0 failed, 0 skipped"])


def test_a_runner_that_left_nothing_is_a_failure(tmp_path: Path, source_root: Path) -> None:
    (tmp_path / "torn.xml").write_text("<testsuite><testcase")
    (tmp_path / "empty.xml").write_text("<testsuite/>")
    for name in ("missing.xml", "torn.xml", "empty.xml"):
        code, lines = summary(source_root, tmp_path / name)
        assert code == 1
        assert lines[-1] == "0 passed, 1 failed, 0 skipped"
