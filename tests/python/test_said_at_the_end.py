# SPDX-License-Identifier: Apache-2.0
"""What commands say when they fail or are stopped: reasons, once, and advice that can be taken."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import headrace
import small_lake
from conftest import STARTED
from headrace import forecast
from test_flow_findings import activity, custom, document, findings, loop


def interrupted(binary: Path, folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command until it catches Ctrl-C, and press it."""
    process = subprocess.Popen(
        [binary, *map(str, words)],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HEADRACE_REGISTRY": str(folder / "registry")},
    )
    STARTED.append(process)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        if int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["train", "--global", "--model", "g"], "a global model"),
        (["backtest"], "a backtest"),
        (["backtest", "--global"], "a backtest"),
    ],
)
def test_ctrl_c_says_in_one_line_that_nothing_is_kept(
    headrace_binary: Path, tmp_path: Path, run_headrace, words: list[str], left: str
) -> None:
    lake = small_lake.good_lake(tmp_path)
    options = small_lake.TRAIN | {"epochs": 10000, "batches_per_epoch": 1000}
    given = [w for n, v in options.items() for w in (f"--{n.replace('_', '-')}", str(v))]
    verb, *more = words
    done = interrupted(headrace_binary, tmp_path, "forecast", verb, lake, *more, *given)
    assert done.returncode == 130, done.stderr
    lines = [line for line in done.stderr.splitlines() if "interrupted" in line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("interrupted: nothing was kept") and left in lines[0]
    assert "cannot be resumed" in lines[0]
    text = " ".join(run_headrace("forecast", verb, "--help").stdout.split())
    assert "Ctrl-C" in text and ("keeps nothing" in text or "nothing is kept" in text)


def test_a_global_training_sends_actuals_to_evaluate(tmp_path: Path, run_headrace) -> None:
    lake = small_lake.good_lake(tmp_path)
    train = ["forecast", "train", lake, *small_lake.FAST, "--global"]
    for option in ("--actuals", "--actuals-start", "--actuals-format"):
        given = "csv" if option.endswith("format") else "2026-01-01"
        done = run_headrace(*train, option, given)
        assert done.returncode == 2
        assert option in done.stderr and "headrace forecast evaluate" in done.stderr, done.stderr
        assert "tell it to predict" not in done.stderr
    done = run_headrace(*train, "--quantiles", "0.5")
    assert "tell it to predict" in done.stderr


def test_a_table_of_which_no_item_can_be_used_says_why(tmp_path: Path, run_headrace) -> None:
    data = small_lake.columns()
    data["timestamp"][1 :: small_lake.HOURS] = data["timestamp"][0 :: small_lake.HOURS]
    options: dict[str, Any] = {**small_lake.TRAIN, "scope": "global"}
    with pytest.raises(headrace.Error, match="none of 3 items can be used; the first") as told:
        forecast.train(small_lake.table(data), **options)
    assert "none of 0" not in str(told.value) and "2026-01-01" in str(told.value)

    lake = small_lake.good_lake(tmp_path)
    backtest = ["forecast", "backtest", lake, *small_lake.FAST, "--global", "--windows", 30]
    done = run_headrace(*backtest)
    assert done.returncode == 1
    assert "none of 0" not in done.stderr
    assert "of 30 origins" in done.stderr, done.stderr
    with pytest.raises(headrace.Error, match="of 30 origins"):
        forecast.backtest(lake, windows=30, **options)


def test_items_that_fail_alike_are_told_once(tmp_path: Path, run_headrace) -> None:
    lake = small_lake.good_lake(tmp_path)
    done = run_headrace("forecast", "backtest", lake, *small_lake.FAST, "--windows", 30)
    lines = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("failed: 3 items (s0, s1, s2): ")
    assert 'item "' not in lines[0]


def test_python_raises_where_nothing_was_judged(tmp_path: Path) -> None:
    lake = small_lake.good_lake(tmp_path)
    model = forecast.train(lake, scope="global", **small_lake.TRAIN)
    made = forecast.predict(model, lake)
    with pytest.raises(headrace.Mismatch, match="nothing was judged"):
        forecast.evaluate(made, lake, lake)


def test_advice_after_a_failure_does_not_resume_with_other_options(
    tmp_path: Path, run_headrace
) -> None:
    data = small_lake.columns()
    data["target"] = [float("inf") for _ in data["target"]]
    lake = small_lake.write(tmp_path / "lake" / "part-0.parquet", small_lake.table(data))
    train = ["forecast", "train", lake, *small_lake.FAST, "--global-members", 0]
    done = run_headrace(*train, "--model", "m")
    assert done.returncode == 1
    text = done.stdout + done.stderr
    assert "the same inputs fail the same way" in text, text
    assert "options first" not in text
    assert "start a new run" in text


LOCAL = {"operation": "train", "scope": "local", "table": "t.csv", "model": "m"}


def trains(**properties: object) -> dict[str, Any]:
    return activity("HeadraceForecast", {**LOCAL, "train": {"horizon": 3}, **properties})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "item"),
        ({"item": ""}, "item"),
        ({"item": "a", "model": ""}, "model"),
        ({"item": "a", "table": ""}, "table"),
    ],
)
def test_a_training_of_one_series_needs_its_item(
    tmp_path: Path, run_headrace, given: dict[str, object], named: str
) -> None:
    found = findings(run_headrace, tmp_path, document(trains(**given)))
    errors = [one["message"] for one in found if one["severity"] == "error"]
    assert len(errors) == 1 and named in errors[0], found


def test_an_item_that_is_an_expression_is_one(tmp_path: Path, run_headrace) -> None:
    inner = {**trains(item="@item()"), "name": "inner"}
    for one in (loop(activities=[inner]), trains(item="a"), trains(item="@concat('a', 'b')")):
        found = findings(run_headrace, tmp_path, document(one))
        assert not [f for f in found if f["severity"] == "error"], found


@pytest.mark.parametrize(
    ("kind", "bad", "good"),
    [
        ("Int", "x", "12"),
        ("Int", 1.5, 3),
        ("Float", [1], "1.5"),
        ("Bool", "perhaps", "True"),
        ("Array", "a,b", "[1, 2]"),
        ("Array", {"a": 1}, [1]),
        ("Object", [1], {"a": 1}),
    ],
)
def test_a_default_of_another_type_is_an_error(
    tmp_path: Path, run_headrace, kind: str, bad: object, good: object
) -> None:
    def with_default(value: object) -> list[dict[str, Any]]:
        parameters = {"p": {"type": kind, "defaultValue": value}}
        return findings(run_headrace, tmp_path, document(custom(), parameters=parameters))

    errors = [one["message"] for one in with_default(bad) if one["severity"] == "error"]
    assert len(errors) == 1 and "'p'" in errors[0] and kind in errors[0], errors
    assert not [one for one in with_default(good) if one["severity"] == "error"]


def test_a_secret_default_of_another_type_is_not_quoted(tmp_path: Path, run_headrace) -> None:
    secret = {"type": "SecureString", "value": "hunter2"}
    parameters = {"p": {"type": "Int", "defaultValue": secret}}
    found = findings(run_headrace, tmp_path, document(custom(), parameters=parameters))
    assert [one for one in found if one["severity"] == "error"]
    assert "hunter2" not in str(found)


def test_a_verb_without_its_noun_is_answered_with_both(run_headrace) -> None:
    for verb, whole in (("train", "forecast train"), ("predict", "forecast predict")):
        done = run_headrace(verb)
        assert done.returncode == 2
        assert f'did you mean "{whole}"?' in done.stderr, done.stderr


def test_one_item_is_one(tmp_path: Path, run_headrace) -> None:
    lake = small_lake.write(
        tmp_path / "lake" / "part-0.parquet", small_lake.table(small_lake.columns(["s0"]))
    )
    run_headrace("forecast", "train", lake, *small_lake.FAST, "--global", "--model", "g")
    done = run_headrace("forecast", "predict", lake, "--model", "g", "--out", "f.csv")
    assert done.stdout == "wrote 1 item to f.csv\n"
    done = run_headrace("forecast", "backtest", lake, *small_lake.FAST)
    assert done.stdout.startswith("1 item, season "), done.stdout
    assert run_headrace("models", "export", "g", "g.tar").stdout == "1 version in g.tar\n"
