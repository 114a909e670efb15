# SPDX-License-Identifier: Apache-2.0
"""What a table, a model or a folder is called cannot give orders to a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from conftest import Run
from headrace import registry
from test_flow_cli import pipeline

EVIL = "x\x1b[2J\x9b\x7f\ay"
SHOWN = r"x\x1b[2J\x9b\x7f\x07y"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture
def evil_registry(tmp_path: Path) -> registry.Registry:
    made = registry.open(tmp_path / "registry")
    for step in range(2):
        made.add(
            "m",
            {"w": np.full(4, step, "f4")},
            kind="deepar",
            header={EVIL: EVIL * (step + 1)},
            metrics={"mase": float(step)},
            item=EVIL,
            tags={"note": EVIL},
        )
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["show", "m"],
        ["diff", "m:1", "m:2"],
        ["history", "m"],
        ["sql", "SELECT * FROM version"],
        ["list", "--sort", EVIL],
        ["verify", "--deep"],
        ["show", EVIL],
    ],
)
def test_models(evil_registry: registry.Registry, run_headrace: Run, words: list[str]) -> None:
    done = run_headrace("models", *words)
    assert not CONTROL.search(done.stdout + done.stderr), repr(done.stdout + done.stderr)
    if words == ["show", "m"]:
        assert SHOWN in done.stdout


def test_csv_is_data_in_a_pipe_and_shown_on_a_terminal(
    evil_registry: registry.Registry, headrace_binary: Path, run_headrace: Run, tmp_path: Path
) -> None:
    words = ["models", "list", "--csv", "--all"]
    piped = run_headrace(*words).stdout
    assert piped.count(f",{EVIL},") == 2
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, "HEADRACE_REGISTRY": str(tmp_path / "registry")}
        done = subprocess.run(
            [headrace_binary, *words],
            env=environment,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown.replace("\r\n", "\n") == piped.replace(EVIL, SHOWN)


def test_lake(run_headrace: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{EVIL}.csv"
    path.write_text(f"item_id,{EVIL},target\na,p,1\nb,{EVIL},2\n")
    for words in (["inspect", path], ["head", path], ["head", path, "--columns", "no" + EVIL]):
        done = run_headrace("lake", *words)
        told = done.stdout + done.stderr
        assert SHOWN in told
        assert not CONTROL.search(told), repr(told)
    # In JSON a name stays what it is.
    inspected = json.loads(run_headrace("lake", "inspect", path, "--json").stdout)
    assert EVIL in json.dumps(inspected, ensure_ascii=False).replace("\\u001b", "\x1b").replace(
        "\\u0007", "\a"
    )


def test_forecasts(run_headrace: Run, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    hours = [f"2026-01-{1 + h // 24:02}T{h % 24:02}:00:00" for h in range(240)]
    table.write_text(
        "item_id,timestamp,target\n"
        + "".join(f"{EVIL},{h},{i % 24}\n" for i, h in enumerate(hours))
    )
    out = tmp_path / f"{EVIL}.csv"
    train = ["train", table, "--global", "--horizon", "2", "--epochs", "1", "--members", "1"]
    predict = ["predict", table, "--model", "m", "--out", out]
    plot = ["plot", out, "--history", table, "--item", EVIL, "--out", tmp_path / f"{EVIL}.svg"]
    for words in ([*train, "--model", "m"], predict, plot):
        done = run_headrace("forecast", *words)
        assert done.returncode == 0, done.stderr
        told = done.stdout + done.stderr
        assert not CONTROL.search(told.replace("\r", "")), repr(told)


def test_runs(run_headrace: Run, tmp_path: Path) -> None:
    path = pipeline(tmp_path, "exit 1")
    (tmp_path / EVIL).mkdir()
    folder = tmp_path / EVIL / "run"
    failed = run_headrace("flow", "run", path, "--dir", folder)
    assert failed.returncode == 1 and SHOWN in failed.stdout
    for words in (["status", folder], ["logs", folder], ["report", folder], ["cancel", folder]):
        done = run_headrace("flow", *words)
        told = failed.stdout + failed.stderr + done.stdout + done.stderr
        assert not CONTROL.search(told), repr(told)
