# SPDX-License-Identifier: Apache-2.0
"""What `headrace flow status`, `logs` and `list` tell of runs, and the commands they name."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest

from conftest import Run
from test_flow_cli import pipeline, start, status, wait_for


def stop_two_in_flight(binary: Path, run_headrace: Run, tmp_path: Path) -> None:
    """Leave RUN 'run': one item succeeded, two in flight when the engine was killed."""
    path = pipeline(tmp_path, "test $HEADRACE_ITEM = 0 || sleep 600")
    engine = start(binary, tmp_path, "run", path, "--dir", "run", "--slots", "2")
    wait_for(lambda: (tmp_path / "run/workers/1.log").exists())
    wait_for(
        lambda: (
            status(run_headrace, tmp_path, "run")["activities"][0]["items"]["running"] == 2
            and status(run_headrace, tmp_path, "run")["activities"][0]["items"]["succeeded"] == 1
        )
    )
    engine.kill()
    engine.communicate(timeout=30)


def pasted(line: str, run_headrace: Run, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command that a message names, as a shell would read it, in another folder."""
    found = re.search(r"headrace (flow .*)$", line)
    assert found, line
    folder.mkdir(exist_ok=True)
    return run_headrace(*shlex.split(found.group(1)), cwd=folder)


def test_a_stopped_run_says_what_was_in_flight_and_how_to_go_on(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    stop_two_in_flight(headrace_binary, run_headrace, tmp_path)

    shown = run_headrace("flow", "status", "run", "--items", cwd=tmp_path).stdout
    assert "2 in flight when it stopped" in shown
    assert " running" not in shown and "InProgress" not in shown
    assert "left" not in shown.splitlines()[3], shown  # no column for an ETA
    (resume,) = [line for line in shown.splitlines() if "headrace flow resume" in line]

    told = status(run_headrace, tmp_path, "run")
    assert told["stopped"] is True
    assert told["resume"] == re.sub(".*(headrace flow resume .*)", r"\1", resume)
    (each,) = told["activities"]
    assert each["items"]["running"] == 0
    assert each["items"]["in_flight_when_stopped"] == 2
    assert each["eta_seconds"] is None

    (tmp_path / "pipeline.json").write_text(
        (tmp_path / "pipeline.json").read_text().replace("sleep 600", "true")
    )
    changed = pasted(resume, run_headrace, tmp_path / "elsewhere")
    assert "--accept-changes" in changed.stderr  # it found the run
    done = pasted(resume + " --accept-changes", run_headrace, tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    told = status(run_headrace, tmp_path, "run")
    assert told["stopped"] is False and told["resume"] is None


def test_hints_name_a_run_in_a_way_that_works_where_they_are_pasted(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "test $HEADRACE_ITEM != 4")
    elsewhere = tmp_path / "else where"
    there = {"HEADRACE_RUNS": str(tmp_path / "my runs")}

    failed = run_headrace("flow", "run", path, cwd=tmp_path, env=there)
    (retry,) = [line for line in failed.stdout.splitlines() if "--retry-failed" in line]
    assert pasted(retry, run_headrace, elsewhere).returncode == 1  # found, and it fails again

    unknown = run_headrace("flow", "logs", "--item", "nope", cwd=tmp_path, env=there)
    hint = re.sub(r" lists them.*", "", unknown.stderr.strip())
    assert pasted(hint, run_headrace, elsewhere).returncode == 0, hint

    usual = run_headrace("flow", "run", path, cwd=tmp_path)
    (retry,) = [line for line in usual.stdout.splitlines() if "--retry-failed" in line]
    (run,) = (tmp_path / "runs").iterdir()
    assert retry.endswith(f"headrace flow resume {run.name} --retry-failed")


def test_logs_of_a_run_that_failed_nowhere_say_so_and_what_to_ask(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "echo from $HEADRACE_ITEM")
    assert run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path).returncode == 0

    quiet = run_headrace("flow", "logs", "run", cwd=tmp_path)
    assert quiet.returncode == 0
    assert quiet.stdout == ""
    assert "nothing failed" in quiet.stderr
    assert "--item KEY" in quiet.stderr and "--all" in quiet.stderr

    every = run_headrace("flow", "logs", "run", "--all", cwd=tmp_path)
    for key in range(6):
        assert f"==> items/{key}/do.1.log <==\nfrom {key}\n" in every.stdout


def test_items_of_two_loops_with_one_key_print_their_logs_once(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "echo first $HEADRACE_ITEM", "@range(0, 2)")
    document = json.loads(path.read_text())
    text = json.dumps(document["properties"]["activities"][0])
    text = text.replace('"each"', '"again"').replace('"do"', '"redo"').replace("first", "second")
    document["properties"]["activities"].append(json.loads(text))
    path.write_text(json.dumps(document))
    assert run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path).returncode == 0

    words = ("flow", "logs", "run", "--all")
    shown = run_headrace(*words, cwd=tmp_path).stdout
    told = run_headrace(*words, "--json", cwd=tmp_path).stdout
    logs = [f"items/{key}/{name}.1.log" for key in range(2) for name in ("do", "redo")]
    assert sorted(re.findall("==> (.*) <==", shown)) == logs
    assert sorted(shown.splitlines()) == sorted(
        [f"==> {log} <==" for log in logs] + [f"{w} {k}" for w in ("first", "second") for k in "01"]
    )
    assert sorted(json.loads(line)["log"] for line in told.splitlines()) == logs


def test_logs_come_as_json_lines(run_headrace: Run, tmp_path: Path) -> None:
    path = pipeline(tmp_path, "echo from $HEADRACE_ITEM; test $HEADRACE_ITEM != 4")
    assert run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path).returncode == 1

    def lines(*words: str) -> list[dict[str, Any]]:
        done = run_headrace("flow", "logs", "run", "--json", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    (failed,) = [line for line in lines() if line["kind"] == "error" and "item" in line]
    assert failed["item"] == "4"
    assert failed["status"] == "Failed"
    assert failed["log"] == "items/4/do.1.log"
    assert "exit code 1" in failed["error"]["message"]

    (log,) = [line for line in lines("--item", "3") if line["kind"] == "log"]
    assert log == {"kind": "log", "item": "3", "log": "items/3/do.1.log", "text": "from 3\n"}
    (log, error) = lines("--item", "4")
    assert (log["kind"], error["kind"], error["log"]) == ("log", "error", log["log"])
    assert len([line for line in lines("--all") if line["kind"] == "log"]) == 6


def test_list_shows_every_run_newest_first_with_its_state(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "test $HEADRACE_ITEM != 4 || test -e ../../../../../good")
    assert run_headrace("flow", "run", path, cwd=tmp_path).returncode == 1
    (tmp_path / "good").touch()
    assert run_headrace("flow", "run", path, cwd=tmp_path).returncode == 0
    slow = pipeline(tmp_path, "test $HEADRACE_ITEM = 0 || sleep 600")
    stopped = start(headrace_binary, tmp_path, "run", slow, "--dir", "runs/stopped")
    wait_for(lambda: (tmp_path / "runs/stopped/workers/1.log").exists())
    stopped.send_signal(signal.SIGINT)
    stopped.communicate(timeout=30)
    killed = start(headrace_binary, tmp_path, "run", slow, "--dir", "runs/killed")
    wait_for(lambda: (tmp_path / "runs/killed/workers/1.log").exists())
    killed.kill()
    killed.communicate(timeout=30)
    cancelled = start(headrace_binary, tmp_path, "run", slow, "--dir", "runs/cancelled")
    wait_for(lambda: (tmp_path / "runs/cancelled/workers/1.log").exists())
    assert run_headrace("flow", "cancel", "cancelled", cwd=tmp_path).returncode == 0
    cancelled.communicate(timeout=30)
    running = start(headrace_binary, tmp_path, "run", slow, "--dir", "runs/running")
    try:
        wait_for(lambda: (tmp_path / "runs/running/workers/1.log").exists())
        told = run_headrace("flow", "list", "--json", cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        shown = run_headrace("flow", "list", "--limit", "2", cwd=tmp_path)
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)

    runs = json.loads(told.stdout)["runs"]
    states = ["running", "cancelled", "stopped", "stopped", "succeeded", "failed"]
    assert [run["state"] for run in runs] == states
    assert [run["name"] for run in runs[:4]] == ["running", "cancelled", "killed", "stopped"]
    assert {run["pipeline"] for run in runs} == {"p"}
    counts = {"total": 6, "ended": 6, "failed": 1, "cancelled": 0, "skipped": 0}
    assert runs[5]["items"] == counts
    assert runs[4]["items"] == counts | {"failed": 0}
    assert all(run["started"].endswith("Z") for run in runs)
    assert runs[4]["seconds"] >= 0 and runs[4]["run_id"] == Path(runs[4]["folder"]).name
    assert "running" in shown.stdout and "cancelled" in shown.stdout
    assert "killed" not in shown.stdout and "4 more" in shown.stderr


@pytest.mark.parametrize("damage", ["torn", "foreign", "empty", "corrupt"])
def test_list_survives_folders_that_hold_no_whole_run(
    run_headrace: Run, tmp_path: Path, damage: str
) -> None:
    path = pipeline(tmp_path, "true")
    assert run_headrace("flow", "run", path, "--dir", "runs/good", cwd=tmp_path).returncode == 0
    assert run_headrace("flow", "run", path, "--dir", "runs/bad", cwd=tmp_path).returncode == 0
    (tmp_path / "runs/note.txt").write_text("not a folder")
    (tmp_path / "runs/stray").mkdir()
    journal = tmp_path / "runs/bad/journal"
    whole = journal.read_bytes()
    journal.write_bytes(
        {
            "torn": whole[:-7],
            "foreign": b"another program's journal",
            "empty": b"",
            "corrupt": whole[:40] + b"\0\0\0\0" + whole[44:] + b"\0",
        }[damage]
    )

    told = run_headrace("flow", "list", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    runs = {run["name"]: run for run in json.loads(told.stdout)["runs"]}
    assert runs["good"]["state"] == "succeeded"
    bad = runs["bad"]
    assert set(runs) == {"good", "bad"}
    if damage == "torn":
        assert bad["state"] == "stopped"
    else:
        assert bad["state"] == "unreadable" and bad["error"]
    assert "good" in run_headrace("flow", "list", cwd=tmp_path).stdout


def test_a_run_too_long_to_replay_for_a_list_is_unknown_and_no_advice_is_given(
    headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    slow = pipeline(tmp_path, "sleep 600")
    killed = start(headrace_binary, tmp_path, "run", slow, "--dir", "runs/killed")
    wait_for(lambda: (tmp_path / "runs/killed/workers/1.log").exists())
    killed.kill()
    killed.communicate(timeout=30)
    assert not (tmp_path / "runs/killed/summary.json").exists()
    advice = "goes on with: headrace flow resume"
    assert advice in run_headrace("flow", "list", cwd=tmp_path).stderr
    os.truncate(tmp_path / "runs/killed/journal", (32 << 20) + 1)

    shown = run_headrace("flow", "list", cwd=tmp_path)
    assert shown.stdout.splitlines()[1].split()[:5] == ["killed", "p", "unknown", "?", "?"]
    assert advice not in shown.stderr
    (run,) = json.loads(run_headrace("flow", "list", "--json", cwd=tmp_path).stdout)["runs"]
    assert (run["state"], run["resume"], run["items"]) == ("unknown", None, None)


def test_list_without_runs_says_where_it_looked(run_headrace: Run, tmp_path: Path) -> None:
    none = run_headrace("flow", "list", cwd=tmp_path)
    assert none.returncode == 0
    assert "no runs in runs" in none.stderr and "HEADRACE_RUNS" in none.stderr
    assert json.loads(run_headrace("flow", "list", "--json", cwd=tmp_path).stdout) == {"runs": []}


def test_the_progress_bar_counts_items_that_wait_for_their_retry(
    headrace_binary: Path, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "exit 1", retry=1, retryIntervalInSeconds=30)
    primary, secondary = pty.openpty()
    fcntl.ioctl(primary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    engine = subprocess.Popen(
        [str(headrace_binary), "flow", "run", str(path), "--dir", "run"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=secondary,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(secondary)
    drawn = b""
    try:
        while b"0 running, 2 waiting to retry, 0 failed" not in drawn:
            ready, _, _ = select.select([primary], [], [], 30)
            assert ready, drawn
            drawn += os.read(primary, 4096)
    finally:
        engine.send_signal(signal.SIGINT)
        engine.wait(timeout=30)
        os.close(primary)


@pytest.mark.parametrize("value", ["100000", "-1", "1e3", "", "99999999999999999999"])
def test_a_number_of_slots_that_cannot_be_is_answered_with_the_range(
    run_headrace: Run, tmp_path: Path, value: str
) -> None:
    path = pipeline(tmp_path, "true")
    for words in (["flow", "run", path], ["flow", "resume", "x"], ["forecast", "train", "x"]):
        done = run_headrace(*words, "--slots", value, cwd=tmp_path)
        assert done.returncode == 2
        assert f'--slots takes a whole number from 0 to 4096, not "{value}"' in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_begun_in_a_folder_of_something_else(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, "true")
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").write_text("a cat")

    table = tmp_path / "t.csv"
    rows = [f"a,2026-01-{day:02},{day}\n" for day in range(1, 29)]
    table.write_text("item_id,timestamp,target\n" + "".join(rows))
    for words in (["flow", "run", path], ["forecast", "train", table, "--horizon", "2"]):
        refused = run_headrace(*words, "--dir", "photos", cwd=tmp_path)
        assert refused.returncode == 2
        assert "photos" in refused.stderr and "cat.jpg" in refused.stderr
        assert [entry.name for entry in folder.iterdir()] == ["cat.jpg"]

    (folder / "cat.jpg").rename(folder / "cat-123.json")
    assert run_headrace("flow", "run", path, "--dir", "photos", cwd=tmp_path).returncode == 2
    (folder / "cat-123.json").unlink()
    assert run_headrace("flow", "run", path, "--dir", "photos", cwd=tmp_path).returncode == 0


def test_a_training_that_did_not_begin_does_not_keep_the_next_from_its_folder(
    run_headrace: Run, tmp_path: Path
) -> None:
    rows = [f"a,2026-01-{day:02},{day}\n" for day in range(1, 29)]
    (tmp_path / "my.t.csv").write_text("item_id,timestamp,target\n" + "".join(rows))
    words = ("forecast", "train", "my.t.csv", "--horizon", "2", "--epochs", "1", "--dir", "run")
    (tmp_path / "run").mkdir()
    with (tmp_path / "run/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = run_headrace(*words, cwd=tmp_path)
        assert refused.returncode != 0 and "is locked by" in refused.stderr
    assert not (tmp_path / "run/journal").exists()

    done = run_headrace(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_background_processes_end_with_their_command_but_not_what_left_its_group(
    run_headrace: Run, tmp_path: Path
) -> None:
    command = (
        "sleep 600 & echo $! > $HEADRACE_RUN_FOLDER/group; "
        "setsid sh -c 'echo $$ > $HEADRACE_RUN_FOLDER/gone; exec sleep 600' > /dev/null 2>&1 & "
        "while ! test -s $HEADRACE_RUN_FOLDER/gone; do sleep 0.02; done"
    )
    path = pipeline(tmp_path, command, "@range(0, 1)")
    try:
        done = run_headrace("flow", "run", path, "--dir", "run", cwd=tmp_path)
        assert done.returncode == 0, done.stderr

        group = int((tmp_path / "run/group").read_text())
        gone = int((tmp_path / "run/gone").read_text())
        os.kill(gone, 0)  # lives on
        wait_for(lambda: not runs(group))
    finally:  # "gone" leads a session, whatever became of the test
        for pid in (tmp_path / "run").glob("g*"):
            if runs(int(pid.read_text() or 0)):
                os.kill(int(pid.read_text()), signal.SIGKILL)


def runs(pid: int) -> bool:
    """Is the process there, and no zombie that nobody has reaped?"""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
