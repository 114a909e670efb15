# SPDX-License-Identifier: Apache-2.0
"""Runs that another engine goes on with: of an older version, after a stop, with a new document."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from conftest import STARTED, Run
from test_flow_findings import activity, custom, document


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_of_engine_version_5_goes_on_with_its_secrets(
    run_headrace: Run, source_root: Path, tmp_path: Path
) -> None:
    """Written and interrupted by headrace at ceda72d, with the parameters
    cfg={"key": {"type": "SecureString", "value": "cfg-secret-text"}, "number": ...771177},
    tok=tok-secret-text; its loop has items made of `tok`, of a secure output and of `cfg`.
    """
    shutil.copytree(source_root / "tests/data/flow_run_of_engine_5", tmp_path / "run")
    (tmp_path / "go").touch()

    done = run_headrace("flow", "resume", "run", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "item.0").read_text() == "item-tok-secret-text"
    assert (tmp_path / "item.1").read_text() == "out-madewithin"
    assert "771177" in (tmp_path / "item.2").read_text()


def test_a_run_of_engine_version_5_is_listed_by_the_summary_it_has(
    run_headrace: Run, source_root: Path, tmp_path: Path
) -> None:
    run = tmp_path / "runs/old"
    shutil.copytree(source_root / "tests/data/flow_run_of_engine_5", run)
    journal = run / "journal"  # one that cannot be read: the summary alone can tell
    journal.write_bytes(b"x" * journal.stat().st_size)

    listed = json.loads(run_headrace("flow", "list", "--json", cwd=tmp_path).stdout)["runs"]

    assert listed[0]["state"] == "stopped"
    assert listed[0]["items"]["total"] == 3


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
    code = engine.wait(30)
    assert cancel.wait(30) == 0

    status = run_headrace("flow", "status", "run", "--json", cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["status"] == "Cancelled"
    assert code != 130  # nothing is left to go on with
    assert "came after the end" not in run_headrace("flow", "resume", "run", cwd=tmp_path).stderr


def edited_in_between(run_headrace: Run, tmp_path: Path, before: str, after: str) -> Any:
    """A run of `before` that failed, taken up again with `after` in its place."""
    (tmp_path / "p.json").write_text(before)
    first = run_headrace("flow", "run", "p.json", "--dir", "run", cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    (tmp_path / "p.json").write_text(after)
    again = run_headrace("flow", "resume", "run", "--accept-changes", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    status = run_headrace("flow", "status", "run", "--json", cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    return json.loads(status.stdout)


def test_documents_that_differ_in_secure_inputs_alone_are_both_kept(
    run_headrace: Run, tmp_path: Path
) -> None:
    """The first decided by its own input: with the other's that would be no run at all."""

    def text(which: str, command: str) -> str:
        look = {
            **activity("IfCondition", {"expression": f"@equals('{which}', 'left')"}),
            "name": "look",
            "policy": {"secureInput": True},
        }
        for branch, wanted in (("ifTrueActivities", "left"), ("ifFalseActivities", "right")):
            inner = {
                **custom(command, policy={"secureInput": True}),
                "name": f"go-{wanted}",
            }
            look["typeProperties"][branch] = [inner]
        return json.dumps(document(look))

    state = edited_in_between(
        run_headrace, tmp_path, text("left", "exit 1"), text("right", "exit 0")
    )

    assert state["status"] == "Succeeded"
    kept = json.loads((tmp_path / "run/secrets.json").read_text())
    documents = [value for name, value in kept.items() if name.startswith("@document ")]
    assert len(documents) == 2
    assert "'left'" in documents[0]
    assert "'right'" in documents[1]
    # Taken up with the same document no copy of it is added.
    run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)
    assert json.loads((tmp_path / "run/secrets.json").read_text()) == kept


def test_secrets_of_a_parameter_that_the_new_document_lacks_stay_for_the_first(
    run_headrace: Run, tmp_path: Path
) -> None:
    def text(parameters: dict[str, Any], *activities: dict[str, Any]) -> str:
        return json.dumps(document(*activities, parameters=parameters))

    look = {
        **activity(
            "IfCondition",
            {
                "expression": "@equals(pipeline().parameters.tok, 'tok-secret')",
                "ifTrueActivities": [custom("exit 1")],
            },
        ),
        "name": "look",
    }
    secure = {"tok": {"type": "SecureString", "defaultValue": "tok-secret"}}

    state = edited_in_between(
        run_headrace, tmp_path, text(secure, look), text({}, custom("exit 0"))
    )

    assert state["status"] == "Succeeded"
