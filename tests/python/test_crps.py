# SPDX-License-Identifier: Apache-2.0
"""CRPS of the paths that forecast files keep, against other ways to compute it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import small_lake
from headrace import forecast

STEPS = 6


def crps_of(paths: np.ndarray, value: float) -> float:
    """Mean |x - y| - mean |x - x'| / 2 over all pairs (Gneiting & Raftery 2007, equation 21)."""
    x = np.asarray(paths, np.float32).astype(float)
    return np.abs(x - value).mean() - np.abs(x[:, None] - x[None, :]).mean() / 2


def forecast_table(paths: dict[str, np.ndarray], kind: pa.DataType) -> pa.Table:
    """A file of another program: paths[item] is [step][path]."""
    start = small_lake.START + pandas.Timedelta(hours=small_lake.HOURS)
    stamps = pandas.date_range(start, periods=STEPS, freq="h")
    every = np.concatenate(list(paths.values()))
    return pa.table(
        {
            "item_id": np.repeat(list(paths), STEPS),
            "timestamp": pa.array(list(stamps) * len(paths), pa.timestamp("us")),
            "mean": every.mean(axis=1),
            "q0.5": np.median(every, axis=1),
            "samples": pa.array([list(map(float, row)) for row in every], kind),
        }
    )


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """The past, what came, and the values of its first steps by item."""
    past = small_lake.good_lake(tmp_path)
    rows = small_lake.columns(hours=small_lake.HOURS + STEPS)
    came = small_lake.write(tmp_path / "came" / "a.parquet", small_lake.table(rows))
    frame = pandas.DataFrame(rows).groupby("item_id").target
    return past, came, {item: values.to_numpy()[-STEPS:] for item, values in frame}


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float32(), 40),
        pa.list_(pa.float64(), 40),
    ],
    ids=str,
)
@pytest.mark.parametrize("told", [True, False], ids=["arrow schema", "plain"])
def test_the_crps_of_lists_of_paths_equals_that_over_all_pairs(
    tables, tmp_path: Path, headrace_json, kind: pa.DataType, told: bool
) -> None:
    past, came, values = tables
    rng = np.random.default_rng(4)
    paths = {item: 10 + 3 * rng.standard_normal((STEPS, 40)) for item in values}
    paths["s0"][0, :20] = 10.0  # ties
    table = forecast_table(paths, kind)
    pq.write_table(table, tmp_path / "f.parquet", store_schema=told, row_group_size=5)
    words = ["forecast", "evaluate", "f.parquet", "--history", past, "--actuals", came]
    scores = headrace_json(*words, "--per-item", "items.csv")

    expected = {
        item: [crps_of(paths[item][k], came_values[k]) for k in range(STEPS)]
        for item, came_values in values.items()
    }
    cells = np.array(list(expected.values()))
    assert scores["forecast"]["crps"] == pytest.approx(cells.mean(), rel=1e-12)
    steps = [step["crps"] for step in scores["forecast"]["per_step"]]
    assert steps == pytest.approx(list(cells.mean(axis=0)), rel=1e-12)
    items = pandas.read_csv(tmp_path / "items.csv").query("method == 'forecast'")
    assert dict(zip(items.item_id, items.crps, strict=True)) == pytest.approx(
        {item: np.mean(cell) for item, cell in expected.items()}, rel=1e-12
    )
    judged = forecast.evaluate(table, str(past), str(came))
    assert judged.totals["model"]["crps"] == pytest.approx(cells.mean(), rel=1e-12)


def test_the_crps_of_many_normal_paths_nears_the_closed_form(
    tables, tmp_path: Path, headrace_json
) -> None:
    past, came, values = tables
    rng = np.random.default_rng(5)
    paths = {item: 10 + 3 * rng.standard_normal((STEPS, 20_000)) for item in values}
    pq.write_table(forecast_table(paths, pa.list_(pa.float32())), tmp_path / "f.parquet")
    words = ["forecast", "evaluate", "f.parquet", "--history", past, "--actuals", came]
    crps = headrace_json(*words)["forecast"]["crps"]

    def normal(y: float) -> float:  # Gneiting et al. 2005, equation 5
        z = (y - 10) / 3
        cumulative = (1 + math.erf(z / math.sqrt(2))) / 2
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return 3 * (z * (2 * cumulative - 1) + 2 * density - 1 / math.sqrt(math.pi))

    expected = np.mean([normal(y) for item in values.values() for y in item])
    assert crps == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_paths_that_predict_keeps_are_judged(
    tables, tmp_path: Path, headrace_json, run_headrace, ending: str
) -> None:
    past, came, values = tables
    headrace_json("forecast", "train", past, *small_lake.FAST, "--global", "--model", "g")
    words = ["forecast", "predict", past, "--model", "g", "--samples", 30, "--horizon", STEPS]
    headrace_json(*words, "--keep-samples", "--out", f"f.{ending}")
    headrace_json(*words, "--out", f"without.{ending}")
    beside = ["--history", past, "--actuals", came]
    scores = headrace_json("forecast", "evaluate", f"f.{ending}", *beside)

    headrace_json(*words, "--keep-samples", "--out", "same.parquet")
    rows = pandas.read_parquet(tmp_path / "same.parquet")
    cells = [crps_of(row.samples, values[row.item_id][row.step - 1]) for row in rows.itertuples()]
    (name,) = scores.keys() & {"deepar", "model"}
    assert scores[name]["crps"] == pytest.approx(np.mean(cells), rel=1e-6)
    shown = run_headrace("forecast", "evaluate", f"f.{ending}", *beside).stdout.splitlines()
    assert shown[1].split()[-1] == "CRPS"
    assert shown[2].split()[-1] == f"{np.mean(cells):.4g}"
    without = headrace_json("forecast", "evaluate", f"without.{ending}", *beside)
    assert "crps" not in without[name]
    del scores[name], without[name]
    assert scores == without
    shown = run_headrace("forecast", "evaluate", f"without.{ending}", *beside).stdout
    assert "CRPS" not in shown


def test_paths_that_are_not_as_many_at_each_step_are_refused(
    tables, tmp_path: Path, run_headrace
) -> None:
    past, came, values = tables
    paths = {item: np.ones((STEPS, 4)) for item in values}
    table = forecast_table(paths, pa.list_(pa.float32()))
    at = table.column_names.index("samples")
    for spoilt, told in (
        ([1.0, 2.0], 'item "s0": step 4 has 2 samples, step 1 has 4'),
        (None, 'item "s0": step 4 has 0 samples, step 1 has 4'),
        ([1.0, None, 2.0, 3.0], 'item "s0": step 4: sample 2 has no value'),
    ):
        lists = table["samples"].to_pylist()
        lists[3] = spoilt
        column = pa.array(lists, pa.list_(pa.float32()))
        pq.write_table(table.set_column(at, "samples", column), tmp_path / "f.parquet")
        words = ["forecast", "evaluate", "f.parquet", "--history", past, "--actuals", came]
        done = run_headrace(*words)
        assert done.returncode == 2, done.stdout
        assert told in done.stderr, done.stderr
    csv = table.to_pandas()
    csv["samples"] = "1 2 three 4"
    csv.to_csv(tmp_path / "f.csv", index=False)
    done = run_headrace("forecast", "evaluate", "f.csv", "--history", past, "--actuals", came)
    assert done.returncode == 2, done.stdout
    assert '"1 2 three 4"' in done.stderr and "samples" in done.stderr, done.stderr


def test_without_nulls_a_file_may_keep_no_paths_of_an_item(
    tables, tmp_path: Path, headrace_json
) -> None:
    past, came, values = tables
    paths = {item: np.ones((STEPS, 4)) for item in values}
    table = forecast_table(paths, pa.list_(pa.float32()))
    lists = [None] * STEPS + table["samples"].to_pylist()[STEPS:]
    column = pa.array(lists, pa.list_(pa.float32()))
    at = table.column_names.index("samples")
    pq.write_table(table.set_column(at, "samples", column), tmp_path / "f.parquet")
    words = ["forecast", "evaluate", "f.parquet", "--history", past, "--actuals", came]
    scores = headrace_json(*words)
    assert scores["items"] == len(values)
    assert "crps" not in scores["forecast"]  # a mean over some of the items would not be theirs
    json.dumps(scores, allow_nan=False)
