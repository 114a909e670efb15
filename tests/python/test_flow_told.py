# SPDX-License-Identifier: Apache-2.0
"""What a run tells beside its journal: files about attempts, progress."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import STARTED, Run
from test_flow_findings import activity, custom, document


def test_the_meta_file_says_timeout_exit_and_queue(run_headrace: Run, tmp_path: Path) -> None:
    slow = custom("trap '' TERM; sleep 60 & wait; wait", policy={"timeout": "0.00:00:01"})
    bad = {**custom("exit 7"), "name": "b"}
    (tmp_path / "p.json").write_text(json.dumps(document(slow, bad)))

    done = run_headrace(
        "flow", "run", "p.json", "--dir", "run", "--grace", "0.2", cwd=tmp_path, timeout=9
    )

    assert done.returncode == 1
    meta = json.loads((tmp_path / "run/activities/a.1.meta.json").read_text())
    assert meta["error"]["code"] == "Timeout"
    assert meta["error"]["message"] == "'a' did not end within its policy.timeout of 1 s"
    meta = json.loads((tmp_path / "run/activities/b.1.meta.json").read_text())
    assert meta["exit"] == "exit code 7"
    assert meta["queue_seconds"] >= 0


def test_a_loop_without_workers_shows_no_rate_of_millions(
    run_headrace: Run, tmp_path: Path
) -> None:
    set_v = activity("SetVariable", {"variableName": "v", "value": "x"}) | {"name": "s"}
    each = activity("ForEach", {"items": "@range(0, 5)", "activities": [set_v]})
    whole = document(each, variables={"v": {"type": "String"}})
    (tmp_path / "p.json").write_text(json.dumps(whole))

    done = run_headrace("flow", "run", "p.json", cwd=tmp_path)

    assert done.returncode == 0
    assert "5/5" in done.stderr
    assert "/s" not in done.stderr


@pytest.mark.parametrize("verb", ["logs", "cancel"])
def test_an_empty_key_is_no_item_and_not_the_whole_run(
    run_headrace: Run, tmp_path: Path, verb: str
) -> None:
    (tmp_path / "p.json").write_text(json.dumps(document(custom("exit 1"))))
    run_headrace("flow", "run", "p.json", "--dir", "run", cwd=tmp_path)

    done = run_headrace("flow", verb, "run", "--item", "", cwd=tmp_path)

    assert done.returncode == 2
    assert "--item" in done.stderr
    assert "empty" in done.stderr


def cancelled_run(run_headrace: Run, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A loop of four: one fails, which cancels the others."""
    inner = {**custom("test $HEADRACE_ITEM != 1 && sleep 60"), "name": "inner"}
    each = activity(
        "ForEach",
        {
            "items": "@range(0, 4)",
            "activities": [inner],
            "failureBudget": {"count": 1, "onExceeded": "cancel"},
        },
    )
    (tmp_path / "p.json").write_text(json.dumps(document(each)))
    return run_headrace("flow", "run", "p.json", "--slots", "2", cwd=tmp_path)


def test_what_failed_is_counted_apart_from_what_was_cancelled_or_not_begun(
    run_headrace: Run, tmp_path: Path
) -> None:
    done = cancelled_run(run_headrace, tmp_path)

    assert done.returncode == 1
    assert "1 failed, 3 cancelled" in done.stderr.splitlines()[0]
    assert "4 failed" not in done.stderr + done.stdout
    for _ in range(2):  # by the summary, then by the journal
        listed = run_headrace("flow", "list", "--json", cwd=tmp_path)
        items = json.loads(listed.stdout)["runs"][0]["items"]
        assert items["failed"] == 1
        assert items["cancelled"] == 3
        assert items["total"] == items["ended"] == 4
        next((tmp_path / "runs").glob("*/summary.json"), Path("none")).unlink(missing_ok=True)
    header, row = run_headrace("flow", "list", cwd=tmp_path).stdout.splitlines()
    assert header.split()[4:6] == ["failed", "cancelled"]
    assert row.split()[4:6] == ["1", "3"]


def interrupted_and_resumed(
    run_headrace: Run, headrace_binary: Path, tmp_path: Path, pause: float, *options: str
) -> None:
    command = f"touch {tmp_path}/begun; test -e {tmp_path}/go || sleep 60"
    (tmp_path / "p.json").write_text(json.dumps(document(custom(command))))
    if options:
        (tmp_path / "go").touch()
        assert run_headrace("flow", "run", "p.json", cwd=tmp_path).returncode == 0
    else:
        engine = subprocess.Popen(
            [str(headrace_binary), "flow", "run", "p.json"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        STARTED.append(engine)
        deadline = time.monotonic() + 30
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.5)  # what was worked before the stop counts
        engine.send_signal(signal.SIGINT)
        assert engine.wait(30) == 130
        (tmp_path / "go").touch()
    time.sleep(pause)  # the gap itself
    done = run_headrace("flow", "resume", "latest", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_time_between_stop_and_resume_is_not_worked(
    run_headrace: Run, headrace_binary: Path, tmp_path: Path
) -> None:
    interrupted_and_resumed(run_headrace, headrace_binary, tmp_path, 3.0)

    state = json.loads(run_headrace("flow", "status", "--json", cwd=tmp_path).stdout)
    assert 0.4 < state["seconds"] < 2.5
    assert state["idle_seconds"] >= 2.9
    shown = run_headrace("flow", "status", cwd=tmp_path).stdout
    assert "between stop and resume" in shown
    took = shown.split("took ")[1].split(",")[0].split(" ")
    assert took[1] == "ms" or float(took[0]) < 2.5
    for _ in range(2):
        listed = json.loads(run_headrace("flow", "list", "--json", cwd=tmp_path).stdout)
        assert 0.4 < listed["runs"][0]["seconds"] < 2.5
        assert listed["runs"][0]["idle_seconds"] >= 2.9
        next((tmp_path / "runs").glob("*/summary.json"), Path("none")).unlink(missing_ok=True)
    run_headrace("flow", "report", "latest", "--out", "report.html", cwd=tmp_path)
    page = (tmp_path / "report.html").read_text()
    data = json.loads(re.search(r'"seconds":([0-9.e+-]+)', page).group(1))  # type: ignore[union-attr]
    assert 0.4 < data < 2.5


def test_nor_is_that_before_a_run_began_anew(
    run_headrace: Run, headrace_binary: Path, tmp_path: Path
) -> None:
    inner = {**custom(f"test -e {tmp_path}/go || exit 1"), "name": "inner"}
    each = activity("ForEach", {"items": "@range(0, 2)", "activities": [inner]})
    (tmp_path / "p.json").write_text(json.dumps(document(each)))
    assert run_headrace("flow", "run", "p.json", cwd=tmp_path).returncode == 1
    (tmp_path / "go").touch()
    time.sleep(3.0)  # the gap itself

    done = run_headrace("flow", "resume", "latest", "--retry-failed", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    state = json.loads(run_headrace("flow", "status", "--json", cwd=tmp_path).stdout)
    assert state["seconds"] < 2.5
    assert state["idle_seconds"] >= 2.9


def test_what_fails_the_same_way_again_is_not_advised_to_be_run_again(
    run_headrace: Run, tmp_path: Path
) -> None:
    """Whether the policy has retries or not."""
    for retry in (0, 2):
        failing = activity(
            "HeadraceForecast",
            {"operation": "items", "table": "no-such-table.parquet"},
            policy={"retry": retry, "retryIntervalInSeconds": 1},
        )
        (tmp_path / "p.json").write_text(json.dumps(document(failing)))
        done = run_headrace("flow", "run", "p.json", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "the same inputs fail the same way" in done.stdout, retry
        assert "run again what failed" not in done.stdout
