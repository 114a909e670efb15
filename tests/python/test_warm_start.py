# SPDX-License-Identifier: Apache-2.0
"""`headrace forecast train --warm-start`: a model of all series, or each item's own earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import small_lake


def train(lake: Path, *words: object) -> list[object]:
    return ["forecast", "train", lake, *small_lake.FAST, *words]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake.good_lake(tmp_path)


def test_a_model_of_all_series_starts_another(lake: Path, tmp_path: Path, headrace_json) -> None:
    headrace_json(*train(lake, "--global", "--model", "g"))
    told = headrace_json(*train(lake, "--global", "--model", "warm", "--warm-start", "g"))
    assert told["model"] == "warm:1"


@pytest.mark.parametrize("scope", [["--global"], []], ids=["global", "local"])
def test_a_start_that_does_not_fit_is_told_before_a_run_is_made(
    lake: Path, tmp_path: Path, headrace_json, run_headrace, scope: list[str]
) -> None:
    headrace_json(*train(lake, "--global", "--model", "g"))
    for words, difference in [
        (["--hidden", 8], "hidden is 8 here and 4 there"),
        (["--distribution", "normal"], "distribution is normal here and student_t there"),
        (["--lags", "1,2"], "lags is [1, 2] here"),
        (["--frequency", "D"], "frequency is D here and h there"),
    ]:
        own = [word for name, value in small_lake.TRAIN.items() if f"--{name}" != words[0]
               for word in (f"--{name.replace('_', '-')}", value)]  # fmt: skip
        start = ["--model", "m", "--warm-start", "g", *scope]
        done = run_headrace("forecast", "train", lake, *own, *start, *words)
        assert done.returncode != 0
        assert difference in done.stderr, done.stderr
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["sales", "sales/*", "sales@champion", "sales/*@champion"])
def test_each_item_starts_from_its_own_earlier_model(
    lake: Path, tmp_path: Path, run_headrace, headrace_json, name: str
) -> None:
    rows = small_lake.columns(small_lake.ITEMS[:2])
    old = small_lake.write(tmp_path / "old" / "a.parquet", small_lake.table(rows))
    pipeline = small_lake.pipeline(tmp_path / "p.json", old, model="sales", choose=False)
    assert run_headrace("flow", "run", pipeline, "--dir", "a").returncode == 0
    headrace_json("models", "alias", "sales/*", "champion")

    words = ["--model", "sales", "--warm-start", name, "--dir", "b"]
    done = run_headrace(*train(lake, *words))
    assert done.returncode == 0, done.stderr + done.stdout
    shown = [headrace_json("models", "show", f"sales/{item}") for item in small_lake.ITEMS]
    parents = [version["lineage"]["parent"] for version in shown]
    first = [headrace_json("models", "show", f"sales/{item}:1")["uid"] for item in ("s0", "s1")]
    assert parents[:2] == first
    assert not parents[2]
    text = (tmp_path / "b" / "evaluation.json").read_text()
    assert "earlier" in json.loads(text)["summary"]
    logs = run_headrace("flow", "logs", "b", "--item", "s2").stdout
    assert "s2 has no earlier model" in logs, logs

    done = run_headrace(*train(lake, "--global", "--model", "x", "--warm-start", "sales/*"))
    assert done.returncode == 2
    assert "names a model per item" in done.stderr
