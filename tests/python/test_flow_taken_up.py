# SPDX-License-Identifier: Apache-2.0
"""Runs that another engine goes on with: of the version before, after a stop, with a new document."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

from conftest import STARTED, Run
from test_flow_findings import activity, document


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_that_is_cancelled_and_interrupted_at_once_can_still_be_read(
    run_headrace: Run, headrace_binary: Path, tmp_path: Path
) -> None:
    wait = activity("Wait", {"waitTimeInSeconds": 60})
    (tmp_path / "p.json").write_text(json.dumps(document(wait)))
    engine = subprocess.Popen(
        [str(headrace_binary), "flow", "run", "p.json", "--dir", "run"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    STARTED.append(engine)
    wait_for(tmp_path / "run/journal")
    deadline = time.monotonic() + 30
    while "InProgress" not in run_headrace("flow", "status", "run", cwd=tmp_path).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    engine.send_signal(signal.SIGSTOP)
    cancel = subprocess.Popen(
        [str(headrace_binary), "flow", "cancel", "run"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    STARTED.append(cancel)
    wait_for(tmp_path / "run/cancel")
    engine.send_signal(signal.SIGINT)
    engine.send_signal(signal.SIGCONT)
    engine.wait(30)
    cancel.wait(30)

    status = run_headrace("flow", "status", "run", "--json", cwd=tmp_path)
    assert status.returncode in (0, 1), status.stderr
    assert json.loads(status.stdout)["status"] == "Cancelled"
    assert "came after the end" not in run_headrace("flow", "resume", "run", cwd=tmp_path).stderr
