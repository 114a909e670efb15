# SPDX-License-Identifier: Apache-2.0
"""What a run tells beside its journal: files about attempts, progress."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Run
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
