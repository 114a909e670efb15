# SPDX-License-Identifier: Apache-2.0
"""What a new user runs into: names with folders, names of sets, and what is told to do next."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import Run

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
from small_lake import FAST, good_lake


def custom_loop(tmp_path: Path, command: str) -> Path:
    inner: dict[str, Any] = {
        "name": "do",
        "type": "Custom",
        "typeProperties": {"command": command},
    }
    each = {
        "name": "each",
        "type": "ForEach",
        "typeProperties": {"items": "@range(0, 8)", "batchCount": 2, "activities": [inner]},
    }
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"name": "p", "properties": {"activities": [each]}}))
    return path


@pytest.mark.parametrize("words", [(), ("--dir", "out")])
def test_a_models_name_may_have_folders(
    run_headrace: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    lake = good_lake(tmp_path)
    name = "team/it's"
    done = run_headrace(
        *("forecast", "train", lake, "--model", name, "--global-members", "1"),
        *(*FAST, *words, "--json"),
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["evaluation"]
    assert summary["items"] == 3
    assert "text" not in summary
    shown = run_headrace("models", "show", name, cwd=tmp_path)
    assert shown.returncode != 0
    assert f'3 models below it, such as {name}/s0; name one, or "{name}/*"' in shown.stderr
    nothing = run_headrace("models", "list", "nothing", cwd=tmp_path)
    assert nothing.returncode == 1
    assert nothing.stdout == ""
    assert "nothing matches" in nothing.stderr


@pytest.mark.parametrize("scope", ["--global", "--local"])
def test_a_name_that_cannot_be_is_refused_before_anything(
    run_headrace: Run, tmp_path: Path, scope: str
) -> None:
    done = run_headrace("forecast", "train", "absent.csv", "--model", "x:3", scope, cwd=tmp_path)

    assert done.returncode == 2
    assert "':' at byte 1 is not allowed; leave it out, or write it as %3A" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_validate_judges_a_models_name(run_headrace: Run, tmp_path: Path) -> None:
    properties = {"operation": "train", "scope": "global", "table": "t", "model": "x:3"}
    activity = {"name": "a", "type": "HeadraceForecast", "typeProperties": properties}
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"name": "p", "properties": {"activities": [activity]}}))

    done = run_headrace("flow", "validate", path, cwd=tmp_path)

    assert done.returncode == 2
    assert "':' at byte 1 is not allowed" in done.stdout + done.stderr


def test_items_that_never_started_are_not_counted_as_ended(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = custom_loop(tmp_path, "echo no; exit 3")

    done = run_headrace("flow", "run", path, "--dir", "run", "--slots", "1", cwd=tmp_path)

    assert "5 of 8 items ended, 5 failed, 3 not started" in done.stdout
    assert "run again what failed" in done.stdout


def test_what_fails_again_as_things_are_is_not_offered_to_run_again(
    run_headrace: Run, tmp_path: Path
) -> None:
    properties = {"operation": "items", "table": "absent"}
    activity = {
        "name": "a",
        "type": "HeadraceForecast",
        "policy": {"retry": 1},
        "typeProperties": properties,
    }
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"name": "p", "properties": {"activities": [activity]}}))

    done = run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path)

    assert done.returncode == 1
    assert "with others start a new run" in done.stdout
    assert "run again what failed" not in done.stdout


def test_a_wide_header_is_cut_short_and_told_apart(run_headrace: Run, tmp_path: Path) -> None:
    header = ",".join(["name", *(f"v{i}" for i in range(300))])
    row = ",".join(["a", *("1.5" for _ in range(300))])
    (tmp_path / "wide.csv").write_text(f"{header}\n{row}\n")

    wide = run_headrace("forecast", "train", "wide.csv", "--horizon", "2", cwd=tmp_path)

    assert "and 291 more, 301 in all" in wide.stderr
    assert "--format wide_csv" in wide.stderr
    (tmp_path / "one.csv").write_text("timestamp,target\n2026-01-01,1\n")
    one = run_headrace("forecast", "train", "one.csv", "--horizon", "2", cwd=tmp_path)
    assert "a table of one series needs a column with the same name in every row" in one.stderr


def test_cancelled_items_are_not_failures(
    run_headrace: Run, headrace_binary: Path, tmp_path: Path
) -> None:
    path = custom_loop(tmp_path, "touch $HEADRACE_RUN_FOLDER/begun; sleep 30")
    with subprocess.Popen(
        [headrace_binary, "flow", "run", path, "--dir", "run", "--slots", "1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as engine:
        deadline = time.monotonic() + 20
        while not (tmp_path / "run/begun").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert run_headrace("flow", "cancel", "run", cwd=tmp_path).returncode == 0
        told = engine.communicate(timeout=30)[0]

    assert "8 of 8 items ended, 0 failed, 8 cancelled" in told
    shown = run_headrace("flow", "status", "run", "--json", cwd=tmp_path)
    items = json.loads(shown.stdout)["activities"][0]["items"]
    assert (items["failed"], items["cancelled"]) == (0, 8)
