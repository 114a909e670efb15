# SPDX-License-Identifier: Apache-2.0
"""`headrace forecast train --warm-start`: a model of all series, or each item's own earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import small_lake


def summary_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "evaluation.json").read_text())["summary"]


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


@pytest.mark.parametrize("words", [["--parity"], ["--validation-windows", 0]], ids=str)
def test_models_that_were_trained_on_everything_are_not_compared_on_it(
    lake: Path, tmp_path: Path, run_headrace, headrace_json, words: list[str]
) -> None:
    each = ["--model", "sales", *words]
    done = run_headrace(*train(lake, *each, "--global-members", 0, "--dir", "a"))
    assert done.returncode == 0, done.stderr
    headrace_json("models", "alias", "sales/*", "first")
    again = ["--model", "sales", "--warm-start", "sales/*@first", "--dir", "b"]
    done = run_headrace(*train(lake, *again))
    assert done.returncode == 0, done.stderr
    summary = summary_of(tmp_path / "b")
    assert "earlier" not in summary
    assert "local" in summary
    (note,) = (one for one in summary["notes"] if "has seen" in one)
    assert "the earlier model has seen the last 2 windows and is left out" in note
    assert "validation_windows 2 and no refit" in note

    # A day later there are two windows that none of them has seen.
    rows = small_lake.columns(hours=small_lake.HOURS + 2 * small_lake.HORIZON)
    small_lake.write(tmp_path / "later" / "a.parquet", small_lake.table(rows))
    later = ["--model", "sales", "--warm-start", "sales/*@first", "--dir", "c"]
    done = run_headrace(*train(tmp_path / "later", *later))
    assert done.returncode == 0, done.stderr
    summary = summary_of(tmp_path / "c")
    assert summary["earlier"]["items"] == len(small_lake.ITEMS)
    assert not any("has seen" in one for one in summary["notes"])


def test_a_set_may_have_items_that_seasonal_naive_forecasts(
    lake: Path, tmp_path: Path, run_headrace, headrace_json
) -> None:
    done = run_headrace(*train(lake, "--model", "sales", "--global-members", 0))
    assert done.returncode == 0, done.stderr
    shown = [headrace_json("models", "show", f"sales/{item}") for item in small_lake.ITEMS]
    assert {version["kind"] for version in shown} == {"seasonal_naive"}
    done = run_headrace(*train(lake, "--model", "sales", "--warm-start", "sales/*", "--dir", "b"))
    assert done.returncode == 0, done.stderr
    logs = run_headrace("flow", "logs", "b", "--item", "s0").stdout
    assert "sales/s0:1 has no weights to start from" in logs, logs
