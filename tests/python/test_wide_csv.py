# SPDX-License-Identifier: Apache-2.0
"""Wide CSV has no time stamps: what came continues the past. On published files of M4."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import small_lake
from headrace import forecast, registry

START = "2015-07-01T00:00:00"
WIDE = ["--format", "wide_csv", "--frequency", "h"]
ITEMS = ["H1", "H10", "H100", "H170"]  # of 700 and of 960 values


def wide(folder: Path, source: Path, name: str) -> Path:
    """The published file's rows of ITEMS."""
    with gzip.open(source / f"Hourly-{name}.csv.gz", "rt") as text:
        rows = list(csv.reader(text))
    path = folder / f"{name}.csv"
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([rows[0], *(row for row in rows[1:] if row[0] in ITEMS)])
    return path


def long(folder: Path, source: Path, name: str) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(pq.read_table(source, filters=[("item_id", "in", ITEMS)]), path)
    return path


@pytest.fixture
def m4(tmp_path: Path, source_root: Path, headrace_json) -> dict[str, Path]:
    source = source_root / "examples" / "m4_hourly"
    paths = {name: wide(tmp_path, source, name) for name in ("train", "test")}
    paths["lake"] = long(tmp_path, source / "lake", "past")
    paths["came"] = long(tmp_path, source / "test.parquet", "came")
    train = ["forecast", "train", paths["lake"], "--global", "--model", "g", "--members", 1]
    headrace_json(*train, *small_lake.FAST)
    return paths


def test_what_came_continues_the_past_as_in_long_tables(
    m4: dict[str, Path], tmp_path: Path, headrace_json, run_headrace
) -> None:
    headrace_json("forecast", "predict", m4["lake"], "--model", "g", "--out", "long.parquet")
    evaluate = ["forecast", "evaluate"]
    beside = ["--history", m4["lake"], "--actuals", m4["came"]]
    expected = headrace_json(*evaluate, "long.parquet", *beside)
    assert expected["items"] == len(ITEMS)

    at = [*WIDE, "--start", START]
    predict = ["forecast", "predict", m4["train"], "--model", "g", "--out", "wide.parquet"]
    headrace_json(*predict, *at)
    both = ["--history", m4["train"], "--actuals", m4["test"]]
    assert headrace_json(*evaluate, "wide.parquet", *both, *at) == expected

    plot = ["forecast", "plot", "wide.parquet", "--item", "H170", "--out", "p.svg"]
    drawn = run_headrace(*plot, *both, *at)
    assert drawn.returncode == 0, drawn.stderr
    assert "actual" in (tmp_path / "p.svg").read_text()


def test_a_table_that_repeats_the_past_is_read_from_its_start(
    m4: dict[str, Path], tmp_path: Path, headrace_json, run_headrace
) -> None:
    past = dict(line.split(",", 1) for line in m4["train"].read_text().splitlines()[1:])
    came = dict(line.split(",", 1) for line in m4["test"].read_text().splitlines()[1:])
    whole = tmp_path / "whole.csv"
    rows = [f"{item},{past[item].rstrip(',')},{came[item]}" for item in past]
    width = max(row.count(",") for row in rows)
    head = ",".join(["id", *(f"V{k}" for k in range(width))])
    whole.write_text("\n".join([head, *(r + "," * (width - r.count(",")) for r in rows)]) + "\n")
    headrace_json("forecast", "predict", m4["train"], "--model", "g", "--out", "f.parquet", *WIDE)
    evaluate = ["forecast", "evaluate", "f.parquet", "--history", m4["train"], *WIDE]
    continued = headrace_json(*evaluate, "--actuals", m4["test"])
    assert headrace_json(*evaluate, "--actuals", whole) == continued

    # All rows from one stamp on, as told: only the series of 700 values end just before it.
    told = run_headrace(
        *evaluate, "--actuals", m4["test"], "--actuals-start", "1970-01-30T04:00:00", "--json"
    )
    assert told.returncode == 1
    scores = json.loads(told.stdout)
    assert scores["items"] == 3
    assert [bad["item"] for bad in scores["errors"]] == ["H170"]


def test_a_run_is_judged_by_a_wide_table(m4: dict[str, Path], tmp_path: Path, run_headrace) -> None:
    train = ["forecast", "train", "--model", "m", "--warm-start", "g", *small_lake.FAST]
    results = []
    for folder, words in (
        ("a", [m4["lake"], "--actuals", m4["came"]]),
        ("b", [m4["train"], "--actuals", m4["test"], *WIDE, "--start", START]),
    ):
        done = run_headrace(*train, *words, "--dir", folder)
        assert done.returncode == 0, done.stderr + done.stdout
        results.append(json.loads((tmp_path / folder / "evaluation.json").read_text())["summary"])
    assert results[0]["items"] == len(ITEMS)
    assert results[1] == results[0]


def test_forecasts_that_nothing_came_for_are_said_to_be_unjudged(
    m4: dict[str, Path], tmp_path: Path, run_headrace, headrace_json
) -> None:
    headrace_json("forecast", "predict", m4["lake"], "--model", "g", "--out", "f.parquet")
    evaluate = ["forecast", "evaluate", "f.parquet", "--history", m4["lake"]]
    done = run_headrace(*evaluate, "--actuals", m4["lake"], "--per-item", "scores.csv")
    assert done.returncode == 1
    assert "nothing was judged: none of the 4 items has a score" in done.stderr, done.stderr
    assert "nan" not in done.stdout and "MASE" not in done.stdout
    assert not (tmp_path / "scores.csv").exists()

    train = ["forecast", "train", m4["lake"], "--actuals", m4["lake"], "--warm-start", "g"]
    done = run_headrace(*train, *small_lake.FAST, "--dir", "run")
    assert done.returncode == 0
    assert "warning: nothing was judged: none of the 4 items has a score" in done.stderr, (
        done.stderr
    )
    assert "nan" not in done.stdout
    summary = json.loads((tmp_path / "run" / "evaluation.json").read_text())["summary"]
    assert summary["judged_on"] == "backtest"
    assert summary["warning"].startswith("nothing was judged")
    assert [bad["item"] for bad in summary["not_judged"]] == sorted(ITEMS)
    assert "model" not in summary


def test_python_continues_the_past_too(m4: dict[str, Path], tmp_path: Path) -> None:
    models = registry.open(tmp_path / "registry").load("g")
    wide = {"format": "wide_csv", "frequency": "h"}
    past = forecast.Table(m4["train"], start=START, **wide)
    made = forecast.predict(models, past)
    scores = forecast.evaluate(made, past, forecast.Table(m4["test"], **wide))
    assert not scores.errors
    expected = forecast.evaluate(forecast.predict(models, m4["lake"]), m4["lake"], m4["came"])
    assert scores.totals == expected.totals


def test_a_model_knows_when_the_rows_it_was_trained_on_begin(
    m4: dict[str, Path], tmp_path: Path, run_headrace, headrace_json
) -> None:
    words = [m4["train"], *WIDE, "--start", START, "--model"]
    headrace_json("forecast", "train", *words, "w", "--global", "--members", 1, *small_lake.FAST)
    headrace_json("forecast", "train", *words, "each", "--global-members", "0", *small_lake.FAST)
    for model in ("w", "each"):
        predict = ["forecast", "predict", m4["train"], "--format", "wide_csv", "--model", model]
        done = run_headrace(*predict, "--out", "silent.csv")
        assert done.returncode == 0, done.stderr
        assert f"begin at {START}, as those that the model was trained on" in done.stderr
        assert "begin at" not in run_headrace(*predict, "--out", "f.csv", "--start", START).stderr
        assert (tmp_path / "silent.csv").read_text() == (tmp_path / "f.csv").read_text()
    evaluate = ["forecast", "evaluate", "f.csv", "--history", m4["train"], *WIDE]
    evaluate += ["--actuals", m4["test"], "--model", "each"]
    assert headrace_json(*evaluate)["items"] == len(ITEMS)

    # A model of stamps knows no start of rows without them.
    predict = ["forecast", "predict", m4["train"], *WIDE, "--out", "f.csv"]
    done = run_headrace(*predict, "--model", "g")
    assert "begin at 1970-01-01 00:00:00, since nothing tells their start" in done.stderr
    train = ["forecast", "train", m4["train"], *WIDE, "--global", "--model", "no_start"]
    headrace_json(*train, "--members", 1, *small_lake.FAST)
    done = run_headrace(*predict, "--model", "no_start")
    assert "begin at 1970-01-01 00:00:00, as those that the model" in done.stderr

    models = registry.open(tmp_path / "registry").load("w")
    table = forecast.Table(m4["train"], format="wide_csv")
    [first] = {row["timestamp"] for row in forecast.predict(models, table).to_arrow().to_pylist()
               if row["item_id"] == "H1" and row["step"] == 1}  # fmt: skip
    assert first.year == 2015


def shortened(folder: Path, path: Path, steps: int) -> Path:
    """The rows of `path` without their last `steps` values."""
    head, *rows = (line.rstrip(",").split(",") for line in path.read_text().splitlines())
    kept = [",".join(row[:-steps] if steps else row) for row in rows]
    out = folder / f"without-{steps}.csv"
    out.write_text("\n".join([",".join(head), *kept]) + "\n")
    return out


@pytest.mark.parametrize("steps", [0, 48])
def test_actuals_that_hold_the_past_alone_are_not_taken_for_what_came(
    m4: dict[str, Path], tmp_path: Path, run_headrace, headrace_json, steps: int
) -> None:
    at = [*WIDE, "--start", START]
    headrace_json("forecast", "predict", m4["train"], "--model", "g", "--out", "f.parquet", *at)
    past = shortened(tmp_path, m4["train"], steps)
    evaluate = ["forecast", "evaluate", "f.parquet", "--history", m4["train"], *at]
    done = run_headrace(*evaluate, "--actuals", past)
    assert done.returncode == 1, done.stdout
    assert "nothing was judged: none of the 4 items has a score" in done.stderr, done.stderr
    # H1 has 700 hours from 2015-07-01 on, and 12 are forecast.
    held = {0: "2015-07-30 03:00:00", 48: "2015-07-28 03:00:00"}[steps]
    assert f"the actual values are of 2015-07-01 00:00:00 to {held}" in done.stderr, done.stderr
    needed = "the forecast is of 2015-07-30 04:00:00 to 2015-07-30 15:00:00"
    assert needed in done.stderr, done.stderr

    train = ["forecast", "train", m4["train"], "--actuals", past, "--warm-start", "g", *at]
    done = run_headrace(*train, *small_lake.FAST, "--model", "m", "--dir", "r")
    summary = json.loads((tmp_path / "r" / "evaluation.json").read_text())["summary"]
    assert summary["judged_on"] == "backtest", summary
    assert needed in summary["warning"]
