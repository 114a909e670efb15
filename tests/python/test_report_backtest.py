# SPDX-License-Identifier: Apache-2.0
"""The report of a run without actual values shows the backtest that chose the models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import small_lake


def report_data(run: Path) -> dict[str, Any]:
    page = (run / "report.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found[1])


SPOKEN = {
    "local": "DeepAR local",
    "global": "DeepAR global",
    "local+naive": "DeepAR local, averaged with seasonal naive",
    "global+naive": "DeepAR global, averaged with seasonal naive",
    "seasonal_naive": "seasonal naive (intervals)",
}


def metrics_of(data: dict[str, Any]) -> dict[str, dict[str, float]]:
    names = data["metricNames"]
    return {item["key"]: dict(zip(names, item["metrics"], strict=True)) for item in data["items"]}


def mean(items: dict[str, dict[str, float]], name: str) -> float:
    values = [metrics[name] for metrics in items.values()]
    return sum(values) / len(values)


def test_without_actual_values_the_report_compares_by_backtest(
    tmp_path: Path, run_headrace
) -> None:
    lake = small_lake.good_lake(tmp_path)
    words = ["forecast", "train", lake, *small_lake.FAST, "--global-members", "0"]
    done = run_headrace(*words, "--dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "run" / "evaluation.json").read_text())["summary"]
    assert told["judged_on"] == "backtest"

    data = report_data(tmp_path / "run")
    items = metrics_of(data)
    assert mean(items, "mase") == pytest.approx(told["as_chosen"]["mase"], rel=1e-3)
    assert mean(items, "mean_wql") == pytest.approx(told["as_chosen"]["mean_item_wql"], rel=1e-3)
    assert mean(items, "snaive_mase") == pytest.approx(told["seasonal_naive"]["mase"], rel=1e-3)
    facts = {fact["label"]: fact for fact in data["facts"]}
    assert facts["mean MASE"]["value"] == f"{told['as_chosen']['mase']:.3f}"
    assert facts["mean MASE"]["note"] == (
        f"seasonal naive (intervals) {told['seasonal_naive']['mase']:.3f}"
    )
    assert "held out" in facts["judged on"]["note"]
    chosen = "; ".join(f"{n} {SPOKEN[name]}" for name, n in told["winners"].items())
    assert facts["chosen"]["value"] == chosen
    shown = [score["title"] for score in data["scores"]]
    assert shown == ["MASE", "Weighted quantile loss"]
    assert all("held out" in score["help"] for score in data["scores"])
    assert [method["name"] for method in data["scores"][0]["methods"]][:2] == [
        "mase",
        "snaive_mase",
    ]
    assert [method["title"] for method in data["scores"][0]["methods"]] == [
        "headrace",
        "seasonal naive (intervals)",
        "Naive2 (intervals)",
    ]


def test_methods_and_global_models_are_called_by_spoken_names(tmp_path: Path, run_headrace) -> None:
    lake = small_lake.good_lake(tmp_path)
    rows = small_lake.columns(hours=small_lake.HOURS + small_lake.HORIZON)
    came = small_lake.write(tmp_path / "came" / "a.parquet", small_lake.table(rows))
    words = ["forecast", "train", lake, *small_lake.FAST, "--global-members", "2"]
    done = run_headrace(*words, "--actuals", came, "--dir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())

    data = report_data(tmp_path / "run")
    labels = {item["key"]: item["labels"][0] for item in data["items"]}
    assert labels == {
        "global model 0": "",
        "global model 1": "",
        **{name: SPOKEN[item["winner"]] for name, item in evaluation["items"].items()},
    }
    # What came is compared with points, which are called otherwise than candidates.
    assert [method["title"] for method in data["scores"][0]["methods"]] == [
        "headrace",
        "seasonal naive",
        "Naive2",
    ]
    lines = done.stdout.splitlines()
    (chosen,) = (line for line in lines if line.startswith("chosen: "))
    assert "seasonal_naive" not in chosen
    assert any(line.startswith("seasonal naive  ") for line in lines)
