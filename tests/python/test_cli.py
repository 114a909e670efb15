# SPDX-License-Identifier: Apache-2.0
"""The binary as a user meets it: help, errors, exit codes, plain output."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from conftest import Run


def nouns(run_headrace: Run) -> list[str]:
    text = run_headrace("--help").stdout
    block = text.split("Nouns:\n")[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z]+)", block, flags=re.MULTILINE)


def commands(run_headrace: Run) -> list[list[str]]:
    found = []
    for noun in nouns(run_headrace):
        text = run_headrace(noun, "--help").stdout
        if "Verbs:\n" not in text:
            found.append([noun])
            continue
        block = text.split("Verbs:\n")[1].split("\n\n")[0]
        found += [
            [noun, *verb.split()]
            for verb in re.findall(r"^  (\S+(?: \S+)*)  ", block, re.MULTILINE)
        ]
    return found


def test_the_version_is_that_of_the_package(run_headrace: Run) -> None:
    assert run_headrace("--version").stdout == f"headrace {headrace.__version__}\n"
    assert json.loads(run_headrace("--json", "--version").stdout) == {
        "version": headrace.__version__
    }


def test_every_command_has_help_with_an_example_and_no_escape_sequences(run_headrace: Run) -> None:
    all_commands = commands(run_headrace)
    assert ["doctor"] in all_commands
    for words in all_commands:
        done = run_headrace(*words, "--help")
        assert done.returncode == 0, words
        assert done.stderr == ""
        assert "Usage: headrace " + " ".join(words) in done.stdout
        assert "\nExamples:\n  headrace " in done.stdout, f"{words} has no example"
        assert "--json" in done.stdout
        assert "\x1b" not in done.stdout
        assert max(map(len, done.stdout.split("\n"))) <= 96


def test_every_command_refuses_an_unknown_option_with_exit_code_2(run_headrace: Run) -> None:
    for words in commands(run_headrace):
        done = run_headrace(*words, "--zzz")
        assert done.returncode == 2, words
        assert done.stdout == ""
        assert done.stderr.startswith("headrace: "), words
        assert "has no option --zzz" in done.stderr, words


def test_a_wrong_word_is_answered_with_the_nearest_name(run_headrace: Run) -> None:
    done = run_headrace("docter")
    assert done.returncode == 2
    assert 'did you mean "doctor"?' in done.stderr


def test_options_by_names_of_other_libraries_are_answered_with_ours(run_headrace: Run) -> None:
    for words, hint in [
        (["t.csv", "--prediction-length", "48"], 'did you mean "--horizon"?'),
        (["t.csv", "--prediction_length=48"], 'did you mean "--horizon"?'),
        (["t.csv", "--context-length", "48"], 'did you mean "--context"?'),
        (["t.csv", "--freq", "D"], 'did you mean "--frequency"?'),
        (["t.csv", "--batch-size", "8"], 'did you mean "--batch"?'),
        (["t.csv", "--timestamp-column", "ds"], 'did you mean "--time"?'),
        (["t.csv", "--learning_rate", "1"], 'did you mean "--learning-rate"?'),
        (["t.csv", "horizon=48"], "options begin with dashes: --horizon 48"),
        (["t.csv", "prediction_length=48"], "options begin with dashes: --horizon 48"),
        (["prediction_length=48"], "options begin with dashes: --horizon 48"),
    ]:
        done = run_headrace("forecast", "train", *words)
        assert done.returncode == 2, words
        assert hint in done.stderr, words
    done = run_headrace("forecast", "train", "horizon=4", "--horizon", "4")  # may be a folder
    assert "dashes" not in done.stderr


def test_with_json_a_usage_error_is_json_on_standard_output(run_headrace: Run) -> None:
    done = run_headrace("doctor", "--nothing", "--json")
    assert done.returncode == 2
    assert done.stderr == ""
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "invalid_argument"
    assert "--nothing" in error["message"]


def test_doctor_reports_the_machine_as_table_and_as_json(run_headrace: Run) -> None:
    done = run_headrace("doctor", "--json", env={"HEADRACE_PYTHON": sys.executable})
    report = json.loads(done.stdout)
    found = {finding["what"]: finding for finding in report["findings"]}
    assert report["version"] == headrace.__version__
    assert found["cores"]["found"].startswith(f"{len(os.sched_getaffinity(0))} usable")
    assert re.search(r"Arrow \d+\.\d+\.\d+.*SQLite 3\.\d+", found["libraries"]["found"])
    assert found["python"]["found"].startswith(sys.version.split()[0])
    assert found["python package"]["state"] == "works"
    assert found["registry"]["state"] == "works"
    assert {finding["state"] for finding in report["findings"]} <= {"works", "limited", "missing"}
    table = run_headrace("doctor").stdout
    assert all(what in table for what in found)


def test_doctor_says_what_does_not_work_and_what_to_do(run_headrace: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_headrace(
        "doctor",
        "--json",
        env={
            "HEADRACE_REGISTRY": str(tmp_path / "file/registry"),
            "HEADRACE_PYTHON": "no-such-python",
        },
    )
    found = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1  # the registry is needed
    assert found["registry"]["state"] == "missing"
    assert "HEADRACE_REGISTRY" in found["registry"]["found"]
    assert found["python"]["state"] == "limited"  # an interpreter is not
    assert "no-such-python" in found["python"]["found"]
    assert "HEADRACE_PYTHON" in found["python"]["found"]


def test_output_that_cannot_be_written_is_a_failure(headrace_binary: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [str(headrace_binary), "doctor"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "standard output" in done.stderr


def test_no_output_however_long_ends_in_an_abort(headrace_binary: Path, tmp_path: Path) -> None:
    pipeline = Path(__file__).parents[2] / "examples/commands/pipeline.json"
    for words in (
        ["expr", "@range(0, 50000)"],
        ["flow", "run", str(pipeline), "--dir", str(tmp_path / "run"), "--json-events"],
    ):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [str(headrace_binary), *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode == 1, done
        assert done.stderr.splitlines()[-1].startswith("headrace: "), done.stderr
        assert "terminate" not in done.stderr


def test_the_console_script_becomes_the_binary(headrace_binary: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from headrace._cli import main; main()", "--version"],
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == f"headrace {headrace.__version__}\n"


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_on_a_terminal_help_is_the_same_text(headrace_binary: Path, terminal: str) -> None:
    plain = subprocess.run(
        [str(headrace_binary), "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    primary, secondary = pty.openpty()
    subprocess.run(
        [str(headrace_binary), "--help"],
        stdout=secondary,
        env={**os.environ, "TERM": terminal},
        timeout=60,
        check=True,
    )
    os.close(secondary)
    seen = b""
    while True:
        try:
            piece = os.read(primary, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(primary)
    assert seen.decode().replace("\r\n", "\n") == plain
