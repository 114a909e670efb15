# SPDX-License-Identifier: Apache-2.0
"""Pipelines that are not as they should be, and two who want the same run or registry at once."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import Run

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from small_lake import ITEMS, good_lake, pipeline


def activity(name: str, kind: str, after: str = "", **properties: Any) -> dict[str, Any]:
    waits = [{"activity": after, "dependencyConditions": ["Succeeded"]}] if after else []
    return {"name": name, "type": kind, "dependsOn": waits, "typeProperties": properties}


def write_pipeline(path: Path, *activities: dict[str, Any]) -> Path:
    lines = ",\n".join(json.dumps(one) for one in activities)
    path.write_text(f'{{"name": "p", "properties": {{"activities": [\n{lines}\n]}}}}\n')
    return path


def refused(run_headrace: Run, path: Path, *parts: str) -> None:
    """By validate and by run, with a place; nothing is begun."""
    for words in (("validate", path.name), ("run", path.name, "--dir", "run")):
        done = run_headrace("flow", *words, cwd=path.parent)
        said = done.stdout + done.stderr
        assert done.returncode == 2, said
        for part in parts:
            assert part in said, words
    assert not (path.parent / "run").exists()


def test_a_syntax_error_is_told_with_file_line_and_column(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"name": "p", "properties": {"activities": [\n  {"name": "a"}\n  {}]}}')
    refused(run_headrace, path, "p.json:3:3: E-SYNTAX: unexpected '{'; expected ',' or ']'")
    path.write_text('{"name": "p", "properties": {"activities": [')
    refused(run_headrace, path, "p.json:1:45")
    path.write_text("")
    refused(run_headrace, path, "p.json:1:1")


def test_an_unknown_activity_type_is_told_with_the_nearest_name(
    run_headrace: Run, tmp_path: Path
) -> None:
    wrong = activity("fit", "HeadraceForcast", operation="items", table="lake")
    path = write_pipeline(tmp_path / "p.json", wrong)
    refused(
        run_headrace,
        path,
        "p.json:2:1: E-ACTIVITY-TYPE: activity 'fit': unknown type 'HeadraceForcast'",
        "did you mean 'HeadraceForecast'?",
    )


def test_a_cycle_is_named(run_headrace: Run, tmp_path: Path) -> None:
    path = write_pipeline(
        tmp_path / "p.json",
        activity("a", "NoOp", after="c"),
        activity("b", "NoOp", after="a"),
        activity("c", "NoOp", after="b"),
    )
    refused(run_headrace, path, "p.json:2:1: E-CYCLE", "'a' -> 'c' -> 'b' -> 'a'")


def test_an_expression_that_cannot_be_read_is_told_before_the_run(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = write_pipeline(tmp_path / "p.json", activity("half", "NoOp", value="@dvi(10, 2)"))
    refused(run_headrace, path, "p.json:2:", "unknown function 'dvi'", "did you mean 'div'?")


def test_an_expression_that_fails_names_itself_and_its_activity_and_can_be_mended(
    run_headrace: Run, tmp_path: Path
) -> None:
    first = activity("first", "Custom", command="echo x >> $HEADRACE_PIPELINE_FOLDER/ran")
    bad = activity("half", "NoOp", after="first", value="@div(10, sub(1, 1))")
    path = write_pipeline(tmp_path / "p.json", first, bad)

    done = run_headrace("flow", "run", path, "--dir", "run")

    assert done.returncode == 1
    assert "p.json:3:" in done.stderr
    assert "expected a divisor that is not zero" in done.stderr
    assert "in the expression \"@div(10, sub(1, 1))\" of activity 'half'" in done.stderr

    good = activity("half", "NoOp", after="first", value="@div(10, sub(3, 1))")
    write_pipeline(path, first, good)
    changed = run_headrace("flow", "resume", "run")
    assert changed.returncode == 2
    assert "--accept-changes" in changed.stderr
    again = run_headrace("flow", "resume", "run", "--accept-changes")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "ran").read_text() == "x\n"  # its work was kept


def test_an_expression_that_fails_for_items_fails_those_items(
    run_headrace: Run, tmp_path: Path
) -> None:
    each = activity(
        "each",
        "ForEach",
        items="@createArray(1, 0, 2)",
        activities=[activity("part", "NoOp", value="@div(10, item())")],
    )
    path = write_pipeline(tmp_path / "p.json", each)
    done = run_headrace("flow", "run", path, "--dir", "run")
    assert done.returncode == 1
    assert "1 of 3 items" in done.stderr
    assert "in the expression \"@div(10, item())\" of activity 'part'" in done.stderr


# ---- two at once ----


def start(binary: Path, folder: Path, *words: str | Path, **environment: str) -> Any:
    return subprocess.Popen(
        [str(binary), *map(str, words)],
        cwd=folder,
        env={**os.environ, "HEADRACE_REGISTRY": str(folder / "registry"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come in time"
        time.sleep(0.01)


def test_two_runs_on_one_new_registry_both_end_well(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    document = pipeline(tmp_path / "p.json", good_lake(tmp_path), choose=False)
    runs = [
        start(headrace_binary, tmp_path, "flow", "run", document, "--dir", f"run-{i}")
        for i in range(2)
    ]
    for run in runs:
        _, err = run.communicate(timeout=60)
        assert run.returncode == 0, err

    done = run_headrace("models", "list", "--json")
    listed = Counter((one["name"], one["version"]) for one in json.loads(done.stdout)["versions"])
    assert listed == Counter((f"m/{item}", version) for item in ITEMS for version in (1, 2))
    verified = run_headrace("models", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def gated(tmp_path: Path) -> Path:
    """A pipeline that says that it runs and ends when it may."""
    command = "touch began; while ! test -e $HEADRACE_PIPELINE_FOLDER/go; do sleep 0.02; done"
    return write_pipeline(
        tmp_path / "p.json",
        activity("wait", "Custom", command=command.replace("began", "$HEADRACE_RUN_FOLDER/began")),
    )


@pytest.mark.parametrize("how", ["run", "resume"])
def test_a_second_engine_on_one_run_folder_is_refused_and_names_the_owner(
    how: str, headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    document = gated(tmp_path)
    first = start(headrace_binary, tmp_path, "flow", "run", document, "--dir", "run")
    try:
        wait_for(tmp_path / "run" / "began")
        words = ["run", document, "--dir", "run"] if how == "run" else ["resume", "run"]
        second = run_headrace("flow", *words)
    finally:
        (tmp_path / "go").touch()
        _, err = first.communicate(timeout=30)

    assert second.returncode == 1, second.stderr
    assert f"pid {first.pid} on " in second.stderr
    assert "headrace flow run" in second.stderr
    assert first.returncode == 0, err  # it did not notice


def test_of_two_that_resume_one_run_at_once_one_goes_on(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    document = gated(tmp_path)
    killed = start(headrace_binary, tmp_path, "flow", "run", document, "--dir", "run")
    wait_for(tmp_path / "run" / "began")
    killed.kill()
    killed.communicate(timeout=30)
    (tmp_path / "run" / "began").unlink()

    both = [start(headrace_binary, tmp_path, "flow", "resume", "run") for _ in range(2)]
    # The loser ends by itself while the winner waits at the gate.
    deadline = time.monotonic() + 30
    while all(one.poll() is None for one in both):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (tmp_path / "go").touch()
    ended = {one.pid: (one.communicate(timeout=30)[1], one.returncode) for one in both}

    codes = sorted(code for _, code in ended.values())
    assert codes == [0, 1], ended
    (winner,) = [pid for pid, (_, code) in ended.items() if code == 0]
    (said,) = [err for err, code in ended.values() if code == 1]
    assert f"pid {winner} on " in said
