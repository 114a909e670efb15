# SPDX-License-Identifier: Apache-2.0
"""What a run's forecasts are told, and that a run remembers which registry is its own."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import small_lake


def test_a_run_and_a_backtest_take_the_options_of_forecasts(tmp_path: Path, run_headrace) -> None:
    data = small_lake.columns()
    data["target"] = [0.0 if k % 3 else 1.0 for k in range(len(data["target"]))]
    lake = small_lake.write(tmp_path / "lake/a.parquet", small_lake.table(data))
    told = ["--nonnegative", "--samples", 20, "--quantiles", "0.01,0.5,0.9", "--path-limit", 0]
    done = run_headrace("forecast", "train", lake, *small_lake.FAST, *told, "--dir", "run")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "run" / "forecasts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [name for name in rows[0] if name.startswith("q")] == ["q0.01", "q0.5", "q0.9"]
    assert all(float(row["q0.01"]) >= 0 for row in rows)

    done = run_headrace("forecast", "backtest", lake, *small_lake.FAST, "--global", *told)
    assert done.returncode == 0, done.stderr
    done = run_headrace(
        "forecast", "train", lake, *small_lake.FAST, "--quantiles", "0.1", "--actuals", lake,
        "--dir", "none",
    )  # fmt: skip
    assert done.returncode == 2
    assert "--quantiles 0.1 lacks the median" in done.stderr
    assert not (tmp_path / "none").exists()
    done = run_headrace("forecast", "train", lake, *small_lake.FAST, "--global", *told)
    assert done.returncode == 2
    assert "--samples is for forecasts, and --global makes none" in done.stderr


def test_a_run_goes_on_in_its_own_registry(tmp_path: Path, run_headrace, headrace_json) -> None:
    data = small_lake.columns()
    good = dict(data, timestamp=list(data["timestamp"]))
    data["timestamp"][-1] = data["timestamp"][-2]
    lake = small_lake.write(tmp_path / "lake/a.parquet", small_lake.table(data))
    pipeline = small_lake.pipeline(tmp_path / "p.json", lake)
    own = {"HEADRACE_REGISTRY": str(tmp_path / "own")}
    assert "s2" in run_headrace("flow", "run", pipeline, "--dir", "run", env=own).stderr
    small_lake.write(tmp_path / "lake/a.parquet", small_lake.table(good))

    done = run_headrace("flow", "resume", "run", "--retry-failed")  # with another one's folder
    assert "another registry" in done.stderr + run_headrace("flow", "logs", "run", "--all").stdout
    listed = headrace_json("models", "list", "m/*", env=own)
    names = {version["name"] for version in listed["versions"]}
    assert names == {f"m/{item}" for item in small_lake.ITEMS}
    assert not os.path.exists(tmp_path / "registry")


def test_long_items_run_first_and_are_reported_as_the_table_has_them(
    tmp_path: Path, run_headrace, headrace_json
) -> None:
    parts = {"a": 80, "b": 150, "c": 110}
    data = [small_lake.columns([item], hours) for item, hours in parts.items()]
    rows = {name: [value for part in data for value in part[name]] for name in data[0]}
    lake = small_lake.write(tmp_path / "lake/a.parquet", small_lake.table(rows))
    pipeline = small_lake.pipeline(tmp_path / "p.json", lake)
    assert run_headrace("flow", "run", pipeline, "--dir", "run").returncode == 0
    status = headrace_json("flow", "status", "run", "--items")
    assert status["activities"][0]["output"]["items"] == ["b", "c", "a"]
    page = (tmp_path / "run" / "report.html").read_text()
    places = [page.index(f'"key":"{item}"') for item in parts]
    assert places == sorted(places)
