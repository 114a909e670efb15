# SPDX-License-Identifier: Apache-2.0
"""`headrace flow` and `headrace expr` as a user meets them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, STARTED, Run

EXAMPLE = ROOT / "examples/commands/pipeline.json"


def pipeline(tmp_path: Path, command: str, items: str = "@range(0, 6)", **policy: Any) -> Path:
    """A file with a ForEach 'each' over `items` whose 'do' runs `command`."""
    do = {
        "name": "do",
        "type": "Custom",
        "policy": policy,
        "typeProperties": {"command": command},
    }
    each = {
        "name": "each",
        "type": "ForEach",
        "typeProperties": {"items": items, "batchCount": 2, "activities": [do]},
    }
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({"name": "p", "properties": {"activities": [each]}}))
    return path


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def status(run_headrace: Run, tmp_path: Path, run: str = "latest") -> dict[str, Any]:
    done = run_headrace("flow", "status", run, "--items", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def start(binary: Path, tmp_path: Path, *words: str | Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [str(binary), "flow", *map(str, words)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    return process


def test_the_example_runs_and_its_parts_can_be_looked_at(run_headrace: Run, tmp_path: Path) -> None:
    done = run_headrace("flow", "run", EXAMPLE, "-p", "count=5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Succeeded: 5 of 5 items ended, 0 failed" in done.stdout

    run = status(run_headrace, tmp_path)
    assert run["return_value"] == {"largest": 25}
    items = {item["key"]: item for item in run["activities"][0]["item_list"]}
    assert items["3"]["attempts"] == 2
    assert items["4"]["outputs"]["square"]["customOutput"] == {"square": 16}
    table = run_headrace("flow", "status", cwd=tmp_path).stdout
    assert "squares" in table and "5/5" in table

    logs = run_headrace("flow", "logs", "latest", "--item", "3", cwd=tmp_path).stdout
    assert "==> items/3/square.1.log <==\nsquaring 3, attempt 1\n" in logs
    assert "squaring 3, attempt 2\n" in logs

    report = run_headrace("flow", "report", cwd=tmp_path)
    assert (tmp_path / report.stdout.strip()).read_text().startswith("<!")


def test_events_are_json_lines_in_the_order_things_became_durable(
    run_headrace: Run, tmp_path: Path
) -> None:
    done = run_headrace("flow", "run", EXAMPLE, "--json-events", cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "activity_started"
    assert kinds.count("item") == 8
    assert kinds[-1] == "run"
    assert events[-1]["status"] == "Succeeded"
    assert {event["key"] for event in events if event["kind"] == "item"} == set("12345678")


def test_parameters_come_from_pairs_and_files_and_are_checked(
    run_headrace: Run, tmp_path: Path
) -> None:
    (tmp_path / "p.json").write_text('{"count": 3}')
    done = run_headrace("flow", "run", EXAMPLE, "-P", "p.json", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["items"]["total"] == 3

    wrong = run_headrace("flow", "run", EXAMPLE, "-p", "count=many", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "parameter 'count' is of type Int; got string 'many'" in wrong.stderr
    unknown = run_headrace("flow", "run", EXAMPLE, "-p", "cuont=1", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "did you mean 'count'?" in unknown.stderr
    assert run_headrace("flow", "run", EXAMPLE, "-p", "count", cwd=tmp_path).returncode == 2
    assert len(list((tmp_path / "runs").iterdir())) == 1  # nothing was begun for the wrong ones


def test_a_failed_run_names_its_errors_and_how_to_go_on(run_headrace: Run, tmp_path: Path) -> None:
    path = pipeline(tmp_path, "test $HEADRACE_ITEM != 4 || test -e $HEADRACE_RUN_FOLDER/good")
    failed = run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path)
    assert failed.returncode == 1
    assert "ForEach 'each' failed: 1 of 6 items. 1× the command ended with exit code 1 (4)" in (
        failed.stderr
    )
    assert "headrace flow resume run --retry-failed" in failed.stdout.replace(f"{tmp_path}/", "")

    (tmp_path / "run/good").touch()
    again = run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert [activity["status"] for activity in status(run_headrace, tmp_path, "run")["activities"]]


@pytest.mark.parametrize("option", [["--fail-fast"], ["--max-failures", "20%"]])
def test_a_failure_budget_stops_early(run_headrace: Run, tmp_path: Path, option: list[str]) -> None:
    path = pipeline(tmp_path, "exit 1", "@range(0, 10)")
    done = run_headrace("flow", "run", path, "--slots", "1", *option, cwd=tmp_path)
    assert done.returncode == 1
    assert "stopped by the failure budget" in done.stderr
    for wrong in ("x", "101%", "nan%", "0"):
        done = run_headrace("flow", "run", path, "--max-failures", wrong, cwd=tmp_path)
        assert done.returncode == 2 and "--max-failures" in done.stderr


def test_a_foreach_whose_first_items_all_fail_alike_is_stopped(
    run_headrace: Run, tmp_path: Path
) -> None:
    command = "echo no column y in $HEADRACE_ITEM.csv >&2; test -e $HEADRACE_RUN_FOLDER/good"
    path = pipeline(tmp_path, command, "@range(0, 100)")
    path.write_text(path.read_text().replace('"batchCount": 2', '"batchCount": 20'))

    done = run_headrace("flow", "run", path, "--dir", "run", "--slots", "2", cwd=tmp_path)

    assert done.returncode == 1
    assert "the first 5 items to end all failed with this error and none succeeded" in done.stderr
    assert "its last line: no column y in 0.csv" in done.stderr
    assert "--no-circuit-breaker" in done.stderr
    assert "headrace flow resume run --retry-failed" in done.stdout.replace(f"{tmp_path}/", "")
    items = Counter(item["status"] for item in item_list(run_headrace, tmp_path))
    assert items["Failed"] in (5, 6)  # one more may have been at work
    assert items["Skipped"] == 100 - items["Failed"]

    again = ("flow", "resume", "run", "--retry-failed", "--slots", "2")
    all_of_them = run_headrace(*again, "--no-circuit-breaker", cwd=tmp_path)
    assert all_of_them.returncode == 1
    assert {item["status"] for item in item_list(run_headrace, tmp_path)} == {"Failed"}
    (tmp_path / "run/good").touch()
    assert run_headrace(*again, cwd=tmp_path).returncode == 0
    assert {item["status"] for item in item_list(run_headrace, tmp_path)} == {"Succeeded"}

    off = run_headrace("flow", "run", path, "--dir", "off", "--no-circuit-breaker", cwd=tmp_path)
    assert "100 of 100 items ended, 100 failed" in off.stdout


def item_list(run_headrace: Run, tmp_path: Path) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = status(run_headrace, tmp_path, "run")["activities"][0][
        "item_list"
    ]
    return items


def test_the_numbers_of_a_run_are_shown_while_it_goes_on_and_kept_at_the_end(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    held = "while ! test -e $HEADRACE_RUN_FOLDER/go; do sleep 0.02; done"
    path = pipeline(tmp_path, held)
    engine = start(headrace_binary, tmp_path, "run", path, "--dir", "run", "--slots", "2")
    busy = 'flow.pool_instances{pool="local",state="busy"}'
    wait_for(lambda: (tmp_path / "run/journal").exists())
    wait_for(lambda: (metrics_of(run_headrace, tmp_path) or {}).get(busy) == 2)
    live = metrics_of(run_headrace, tmp_path)
    assert live is not None
    assert live['flow.items_state{state="queued"}'] == 4
    assert live["process.threads"] >= 1
    (tmp_path / "run/go").touch()
    engine.communicate(timeout=30)

    kept = json.loads((tmp_path / "run/metrics.json").read_text())["values"]
    assert kept['flow.items{status="succeeded"}'] == 6
    assert kept["flow.item_seconds"]["count"] == 6
    assert kept == metrics_of(run_headrace, tmp_path)


def metrics_of(run_headrace: Run, tmp_path: Path) -> dict[str, Any] | None:
    found = status(run_headrace, tmp_path, "run")["metrics"]
    values: dict[str, Any] | None = found["values"] if found else None
    return values


def test_failed_items_of_a_run_that_succeeded_are_told_and_can_be_retried(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "test $HEADRACE_ITEM != 4 || test -e ../../../good")
    document = json.loads(path.read_text())
    document["properties"]["activities"].append(
        {
            "name": "after",
            "type": "Wait",
            "dependsOn": [{"activity": "each", "dependencyConditions": ["Completed"]}],
            "typeProperties": {"waitTimeInSeconds": 0},
        }
    )
    path.write_text(json.dumps(document))

    done = run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Succeeded: 6 of 6 items ended, 1 failed" in done.stdout
    assert f"headrace flow resume {tmp_path}/run --retry-failed" in done.stdout
    (tmp_path / "run/good").touch()
    again = run_headrace("flow", "resume", "run", "--retry-failed", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "6 of 6 items ended, 0 failed" in again.stdout


def stand_in(activities: list[dict[str, Any]], commands: dict[str, str]) -> None:
    """Let commands do what HeadraceForecast does in `activities`."""
    for activity in activities:
        stand_in(activity["typeProperties"].get("activities", []), commands)
        if activity["type"] == "HeadraceForecast":
            activity["type"] = "Custom"
            activity["typeProperties"] = {"command": commands.get(activity["name"], "true")}
            activity.get("policy", {})["retry"] = 0


@pytest.mark.parametrize("failing", ["none", "Evaluate", "Train", "Items"])
def test_the_main_example_fails_with_its_items_and_with_its_evaluation(
    run_headrace: Run, tmp_path: Path, failing: str
) -> None:
    document = json.loads((ROOT / "examples/m4_hourly/pipeline.json").read_text())
    commands = {
        "Items": """echo '##headrace-output ["H1", "H2"]'""",
        "Member": """echo '##headrace-output "m"'""",
        "Evaluate": "touch ../../evaluated",
    }
    if failing != "none":
        commands[failing] = f"{commands.get(failing, 'true')}; exit 3"
    stand_in(document["properties"]["activities"], commands)
    text = json.dumps(document).replace("output.items", "output.customOutput")
    path = tmp_path / "pipeline.json"
    path.write_text(text.replace("output.model", "output.customOutput"))

    done = run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path)

    assert done.returncode == (0 if failing == "none" else 1), done.stdout + done.stderr
    state = status(run_headrace, tmp_path, "run")
    assert state["status"] == ("Succeeded" if failing == "none" else "Failed")
    assert (tmp_path / "run/evaluated").exists() == (failing != "Items")


def test_every_key_has_a_folder_of_its_own(run_headrace: Run, tmp_path: Path) -> None:
    keys = ["a", "a/do.1", "a/do.1.log", "..", ".", "a%2Fdo.1", "\n", "x" * 300, "x" * 300 + "y"]
    path = pipeline(
        tmp_path,
        "test ! -e kept && touch kept && echo of $HEADRACE_ITEM",
        items="@pipeline().parameters.keys",
    )
    document = json.loads(path.read_text())
    document["properties"]["parameters"] = {"keys": {"type": "Array", "defaultValue": keys}}
    document["properties"]["activities"][0]["typeProperties"]["isSequential"] = True
    path.write_text(json.dumps(document))

    done = run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    for key in keys:
        logs = run_headrace("flow", "logs", "run", "--item", key, cwd=tmp_path).stdout
        assert logs.split() == ["of", *key.split()]
    assert len(list((tmp_path / "run/items").iterdir())) == len(keys)
    assert len(list((tmp_path / "run").rglob("do.1/kept"))) == len(keys)


def test_a_key_with_a_nul_character_is_refused_by_its_command(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "touch ../../../ran", items="@pipeline().parameters.keys")
    document = json.loads(path.read_text())
    keys = {"type": "Array", "defaultValue": ["a\0b"]}
    document["properties"]["parameters"] = {"keys": keys}
    path.write_text(json.dumps(document))

    done = run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path)

    assert done.returncode == 1
    assert "environment variable HEADRACE_ITEM holds a NUL character" in done.stderr
    assert not (tmp_path / "run/ran").exists()


def test_ctrl_c_stops_within_a_second_and_leaves_a_resumable_run(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(
        tmp_path, "echo x >> $HEADRACE_RUN_FOLDER/ran; test $HEADRACE_ITEM != 3 || sleep 600"
    )
    engine = start(headrace_binary, tmp_path, "run", path, "--dir", "run")
    ran = tmp_path / "run/ran"
    wait_for(lambda: ran.exists() and len(ran.read_text()) == 12)  # all six have begun
    wait_for(
        lambda: (
            sum(
                item["status"] == "Succeeded"
                for item in status(run_headrace, tmp_path, "run")["activities"][0]["item_list"]
            )
            == 5
        )
    )
    began = time.monotonic()
    engine.send_signal(signal.SIGINT)
    out, _ = engine.communicate(timeout=30)

    assert time.monotonic() - began < 1.0
    assert engine.returncode == 130
    assert "continue: headrace flow resume " in out
    run = status(run_headrace, tmp_path, "run")
    assert run["status"] == "InProgress"
    assert run["driven_by"] is None
    left = subprocess.run(["pgrep", "-f", "sleep 600$"], capture_output=True, check=False).stdout
    assert not [pid for pid in left.split() if pid and _parent_is_ours(int(pid), tmp_path)]


def _parent_is_ours(pid: int, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(str(folder))
    except OSError:
        return False


def test_killed_with_signal_9_and_resumed_nothing_runs_twice(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(
        tmp_path, "sleep 0.05; echo x >> $HEADRACE_RUN_FOLDER/$HEADRACE_ITEM", "@range(0, 20)"
    )
    engine = start(headrace_binary, tmp_path, "run", path, "--dir", "run", "--slots", "2")
    wait_for(lambda: len(list((tmp_path / "run").glob("[0-9]*"))) >= 6)
    engine.kill()
    engine.communicate(timeout=30)
    finished = {
        item["key"]
        for item in status(run_headrace, tmp_path, "run")["activities"][0]["item_list"]
        if item["status"] == "Succeeded"
    }

    done = run_headrace("flow", "resume", "run", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    counts = {file.name: len(file.read_text()) // 2 for file in (tmp_path / "run").glob("[0-9]*")}
    assert len(counts) == 20
    assert all(counts[key] == 1 for key in finished)
    assert sum(counts.values()) - 20 <= 2


def test_a_run_can_be_cancelled_from_another_process(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "sleep 600")
    engine = start(headrace_binary, tmp_path, "run", path, "--dir", "run")
    wait_for(lambda: (tmp_path / "run/workers/1.log").exists())
    second = run_headrace("flow", "resume", "run", cwd=tmp_path)
    assert second.returncode == 1
    assert f"pid {engine.pid} on " in second.stderr

    cancelled = run_headrace("flow", "cancel", "run", cwd=tmp_path)

    assert cancelled.returncode == 0, cancelled.stderr
    engine.communicate(timeout=30)
    assert engine.returncode == 3
    assert status(run_headrace, tmp_path, "run")["status"] == "Cancelled"
    nothing = run_headrace("flow", "cancel", "run", cwd=tmp_path)
    assert nothing.returncode == 2
    assert "nothing to cancel" in nothing.stderr


def test_on_a_terminal_progress_is_drawn_and_elsewhere_lines_are_plain(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    plain = run_headrace("flow", "run", EXAMPLE, cwd=tmp_path).stderr
    assert "\x1b" not in plain and "\r" not in plain
    assert "squares: 8/8" in plain

    primary, secondary = pty.openpty()
    done = subprocess.Popen(
        [str(headrace_binary), "flow", "run", str(EXAMPLE)],
        cwd=tmp_path,
        stdin=secondary,
        stdout=subprocess.DEVNULL,
        stderr=secondary,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(secondary)
    drawn = b""
    while True:
        try:
            drawn += os.read(primary, 4096)
        except OSError:
            break
    assert done.wait(timeout=30) == 0
    assert b"squares" in drawn and b"100 %" in drawn and b"\r" in drawn


BAD = """{
  "name": "bad",
  "properties": {
    "parameters": {"n": {"type": "Int"}},
    "activities": [
      {"name": "a", "type": "Custom", "dependsOn": [{"activity": "b", "dependencyConditions": ["Succeeded"]}],
       "typeProperties": {"command": "@concatt('x')"}},
      {"name": "b", "type": "Custom", "dependsOn": [{"activity": "a", "dependencyConditions": ["Succeeded"]}],
       "typeProperties": {"commnad": "@pipeline().parameters.m"}},
      {"name": "c", "type": "Copy", "typeProperties": {}},
      {"name": "d", "type": "Costum", "typeProperties": {}}
    ]
  }
}
"""  # noqa: E501


def test_validate_names_file_line_column_code_and_the_nearest_name(
    run_headrace: Run, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text(BAD)
    done = run_headrace("flow", "validate", "bad.json", cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stdout.splitlines()

    def has(start: str, *parts: str) -> bool:
        return any(line.startswith(start) and all(p in line for p in parts) for line in lines)

    assert has("bad.json:7:38: E-EXPRESSION: (+1)", "'concatt'", "did you mean 'concat'?"), lines
    assert has("bad.json:6:7: E-CYCLE", "'a' -> 'b' -> 'a'"), lines
    assert has("bad.json:9:38: E-REFERENCE", "no parameter 'm'", "'n'"), lines
    assert has("bad.json:8:7: E-PROPERTY", "'command'", "did you mean 'commnad'?"), lines
    assert has("bad.json:10:7: E-NOT-EXECUTABLE", "Copy is not executable yet"), lines
    assert has("bad.json:11:7: E-ACTIVITY-TYPE", "'Costum'", "did you mean 'Custom'?"), lines

    run = run_headrace("flow", "run", "bad.json", cwd=tmp_path)
    assert run.returncode == 2
    assert not (tmp_path / "runs").exists()

    (tmp_path / "syntax.json").write_text('{"name": "x",\n "properties": {"activities" []}}')
    syntax = run_headrace("flow", "validate", "syntax.json", cwd=tmp_path)
    assert syntax.returncode == 2
    assert "syntax.json:2:30: E-SYNTAX: unexpected '['; expected ':'" in syntax.stdout


def test_published_pipelines_are_read_and_say_what_cannot_run_yet(
    run_headrace: Run, tmp_path: Path
) -> None:
    text = {
        "name": "PL",
        "properties": {
            "activities": [
                {
                    "name": "Fit",
                    "type": "DatabricksNotebook",
                    "typeProperties": {"notebookPath": "/fit"},
                }
            ]
        },
    }
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline/PL.json").write_text(json.dumps(text))
    done = run_headrace("flow", "validate", ".", "--json", cwd=tmp_path)
    assert done.returncode == 2
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["code"] == "E-NOT-EXECUTABLE"


def test_expr_evaluates_one_expression(run_headrace: Run, tmp_path: Path) -> None:
    assert run_headrace("expr", "@concat('a', string(add(1, 2)))").stdout == "a3\n"
    assert run_headrace("expr", "@createArray(1, null)").stdout == "[1,null]\n"
    assert run_headrace("expr", "plain").stdout == "plain\n"
    (tmp_path / "c.json").write_text(
        '{"parameters": {"n": 4}, "variables": {"v": [1]}, "item": {"id": "x"},'
        ' "activities": {"A": {"output": {"k": true}}}}'
    )
    text = "@{pipeline().parameters.n} @{variables('v')} @{item().id} @{activity('A').output.k}"
    assert (
        run_headrace("expr", text, "--context", "c.json", cwd=tmp_path).stdout == "4 [1] x True\n"
    )
    wrong = run_headrace("expr", "@concatt('a')")
    assert wrong.returncode == 2
    assert "did you mean 'concat'?" in wrong.stderr


def test_an_unknown_run_lists_those_that_are_there(run_headrace: Run, tmp_path: Path) -> None:
    none = run_headrace("flow", "status", cwd=tmp_path)
    assert none.returncode == 2
    assert "HEADRACE_RUNS" in none.stderr
    assert run_headrace("flow", "run", EXAMPLE, cwd=tmp_path).returncode == 0
    (run,) = (tmp_path / "runs").iterdir()
    wrong = run_headrace("flow", "status", "nope", cwd=tmp_path)
    assert wrong.returncode == 2
    assert run.name in wrong.stderr
    assert run_headrace("flow", "status", run.name[:6], cwd=tmp_path).returncode == 0
