# SPDX-License-Identifier: Apache-2.0
"""Scores per item, per step ahead and in total, against numpy and by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet as pq
import pytest

import small_lake
from headrace import forecast

DECILES = [round(0.1 * k, 1) for k in range(1, 10)]
METHODS = ["deepar", "seasonal_naive", "naive2"]


def write_table(path: Path, series: dict[str, np.ndarray], start: str) -> Path:
    rows = [
        pandas.DataFrame(
            {"item_id": item, "timestamp": pandas.date_range(start, periods=len(y), freq="h")}
        ).assign(target=y)
        for item, y in series.items()
    ]
    pandas.concat(rows).to_csv(path, index=False)
    return path


def write_forecasts(path: Path, quantiles: dict[str, np.ndarray], start: str) -> Path:
    """`quantiles` by item: [deciles, horizon]; the mean is the median."""
    frames = []
    for item, values in quantiles.items():
        stamps = pandas.date_range(start, periods=values.shape[1], freq="h")
        frame = pandas.DataFrame({"item_id": item, "timestamp": stamps, "mean": values[4]})
        for level, row in zip(DECILES, values, strict=True):
            frame[f"q{level}"] = row
        frames.append(frame)
    pandas.concat(frames).to_csv(path, index=False)
    return path


def seasonal_error(training: np.ndarray, season: int) -> float:
    return float(np.nanmean(np.abs(training[season:] - training[:-season])))


def judged(
    actual: np.ndarray, quantiles: np.ndarray, unit: np.ndarray
) -> dict[str, float | np.ndarray]:
    """Metrics of cells: `actual` [n], `quantiles` [deciles, n], `unit` of MASE [n]."""
    there = ~np.isnan(actual)
    y, q, unit = actual[there], quantiles[:, there], unit[there]
    error = np.abs(y - q[4])
    losses = [
        2 * np.maximum(level * (y - f), (level - 1) * (y - f))
        for level, f in zip(DECILES, q, strict=True)
    ]
    return {
        "mase": np.mean(error / unit),
        "smape": np.mean(200 * error / (np.abs(y) + np.abs(q[4]))),
        "nd": error.sum() / np.abs(y).sum(),
        "rmse": math.sqrt(np.mean(error**2)),
        "mean_wql": np.sum(losses) / np.abs(y).sum() / 9,
        "coverage_80": np.mean((q[0] <= y) & (y <= q[8])),
    }


def assert_close(got: dict[str, float], expected: dict[str, float]) -> None:
    assert {name: got[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_two_steps_of_one_item_by_hand(tmp_path: Path, headrace_json) -> None:
    # Steps of the past are 1 and 2 apart: the unit of MASE is 1.5. The median is 1 and 2 off, the
    # last value, which both naive methods repeat with a season of 1, 1 and 3.
    history = write_table(tmp_path / "past.csv", {"a": np.array([1.0, 2, 4])}, "2026-01-01")
    came = write_table(tmp_path / "came.csv", {"a": np.array([5.0, 7])}, "2026-01-01 03:00")
    median = np.tile([4.0, 5.0], (9, 1))
    made = write_forecasts(tmp_path / "made.csv", {"a": median}, "2026-01-01 03:00")
    told = headrace_json(
        *("forecast", "evaluate", made, "--history", history, "--actuals", came),
        *("--season", "1", "--frequency", "h"),
    )
    model = told["forecast"]
    assert [step["step"] for step in model["per_step"]] == [1, 2]
    assert [step["mase"] for step in model["per_step"]] == pytest.approx([1 / 1.5, 2 / 1.5])
    assert [step["smape"] for step in model["per_step"]] == pytest.approx([200 / 9, 400 / 12])
    assert model["mase"] == pytest.approx(1.0)
    for name in METHODS[1:]:
        naive = told[name]
        assert [step["mase"] for step in naive["per_step"]] == pytest.approx([1 / 1.5, 3 / 1.5])
        assert naive["mase"] == pytest.approx(2 / 1.5)
        assert naive["owa"] == pytest.approx(1.0)


def test_every_score_equals_numpys(tmp_path: Path, headrace_json) -> None:
    rng = np.random.default_rng(7)
    horizon, season = 5, 4
    past = {item: 50 + 10 * rng.standard_normal(n) for item, n in [("a", 30), ("b", 44), ("c", 60)]}
    start = "2026-01-01"
    starts = {i: pandas.Timestamp(start) + pandas.Timedelta(hours=len(y)) for i, y in past.items()}
    came = {item: 50 + 10 * rng.standard_normal(horizon) for item in past}
    came["b"][2] = math.nan  # left out everywhere
    made = {item: np.sort(50 + 10 * rng.standard_normal((9, horizon)), axis=0) for item in past}
    history = write_table(tmp_path / "past.csv", past, start)
    parts = [
        pandas.read_csv(write_table(tmp_path / f"{item}.csv", {item: y}, str(starts[item])))
        for item, y in came.items()
    ]
    actuals = tmp_path / "came.csv"
    pandas.concat(parts).to_csv(actuals, index=False)
    parts = [
        pandas.read_csv(write_forecasts(tmp_path / f"{item}.csv", {item: q}, str(starts[item])))
        for item, q in made.items()
    ]
    forecasts = tmp_path / "made.csv"
    pandas.concat(parts).to_csv(forecasts, index=False)

    told = headrace_json(
        *("forecast", "evaluate", forecasts, "--history", history, "--actuals", actuals),
        *("--season", season, "--frequency", "h", "--per-item", tmp_path / "items.csv"),
    )

    naive = {i: np.tile(np.resize(y[-season:], horizon), (9, 1)) for i, y in past.items()}
    unit = {item: np.full(horizon, seasonal_error(y, season)) for item, y in past.items()}
    table = pandas.read_csv(tmp_path / "items.csv")
    assert len(table) == 3 * len(past)
    for name, quantiles in [("forecast", made), ("seasonal_naive", naive)]:
        per_item = {i: judged(came[i], quantiles[i], unit[i]) for i in past}
        for item, expected in per_item.items():
            method = name if name == "forecast" else f"{name}_point"
            [row] = table[(table.item_id == item) & (table.method == method)].to_dict("records")
            assert_close(row, expected)
        for k in range(horizon):
            column = [np.array([came[i][k] for i in past]), np.array([unit[i][k] for i in past])]
            cells = np.stack([quantiles[i][:, k] for i in past], axis=1)
            assert_close(told[name]["per_step"][k], judged(column[0], cells, column[1]))
        total = judged(
            np.concatenate(list(came.values())),
            np.concatenate(list(quantiles.values()), axis=1),
            np.concatenate(list(unit.values())),
        )
        for metric in ("mase", "smape"):  # means over items, whatever cells they have
            total[metric] = np.mean([scores[metric] for scores in per_item.values()])
        assert_close(told[name], total)
        mase = [scores["mase"] for scores in per_item.values()]
        assert told[name]["median_mase"] == pytest.approx(np.median(mase))


def test_a_backtest_tells_steps_items_and_totals_that_agree(
    tmp_path: Path, headrace_json, run_headrace
) -> None:
    lake = small_lake.good_lake(tmp_path)
    words = ["forecast", "backtest", lake, *small_lake.FAST, "--global", "--windows", "2"]
    told = headrace_json(*words, "--per-item", tmp_path / "items.parquet")
    items = pandas.read_parquet(tmp_path / "items.parquet")
    horizon = small_lake.HORIZON

    # All items have all cells, so that means over items, steps and cells are the same.
    for name in METHODS:
        steps = pandas.DataFrame(told[name]["per_step"])
        assert list(steps.step) == list(range(1, horizon + 1))
        # Points beside forecasts of seasonal naive would be two rows of one name.
        mine = items[items.method == (name if name == "deepar" else f"{name}_point")]
        assert sorted(mine.item_id) == small_lake.ITEMS
        for metric in ("mase", "smape", "coverage_80"):
            assert steps[metric].mean() == pytest.approx(told[name][metric])
            assert mine[metric].mean() == pytest.approx(told[name][metric])
        assert np.sqrt((steps.rmse**2).mean()) == pytest.approx(told[name]["rmse"])

    # Seasonal naive is known without us: two origins, errors by the unit of each one's past.
    y = np.array(small_lake.columns(["s0"])["target"])
    scaled = np.zeros(horizon)
    for origin in (len(y) - 2 * horizon, len(y) - horizon):
        naive = y[origin - 24 : origin - 24 + horizon]
        scaled += np.abs(y[origin : origin + horizon] - naive) / seasonal_error(y[:origin], 24) / 2
    steps = pandas.DataFrame(told["seasonal_naive"]["per_step"])
    assert list(steps.mase) == pytest.approx(list(scaled))

    done = run_headrace(*words, "--per-step", "--per-item", tmp_path / "items.csv")
    assert done.returncode == 0, done.stderr
    total, _, rest = done.stdout.partition("\n\n")
    assert [line.split()[0] for line in total.splitlines()[2:]] == METHODS
    assert rest.splitlines()[0].split()[:3] == ["step", "MASE", "sMAPE"]
    assert [line.split()[0] for line in rest.splitlines()[1 : horizon + 1]] == [
        str(k) for k in range(1, horizon + 1)
    ]
    assert rest.splitlines()[-1] == f"wrote {tmp_path / 'items.csv'}"
    pandas.testing.assert_frame_equal(pandas.read_csv(tmp_path / "items.csv"), items)


def test_a_file_of_no_known_ending_is_refused_before_anything_is_trained(
    tmp_path: Path, run_headrace
) -> None:
    words = ["forecast", "backtest", tmp_path / "no-such-lake", *small_lake.FAST]
    done = run_headrace(*words, "--per-item", "scores.txt", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout or done.stderr)["error"]["message"] == (
        "scores.txt: scores are written as .parquet, .csv or .csv.gz"
    )


@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["text", "json"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    json_flag: list[str], tmp_path: Path, run_headrace
) -> None:
    none = tmp_path / "no-such-lake"
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    file = tmp_path / "file"
    file.touch()
    forecast_words = [none, "--history", none]
    commands = [
        ["backtest", none, *small_lake.FAST, "--per-item"],
        ["evaluate", *forecast_words, "--actuals", none, "--per-item"],
        ["predict", none, "--model", "m", "--out"],
        ["plot", *forecast_words, "--item", "a", "--out"],
    ]
    for words in commands:
        for name, reason in [
            (tmp_path / "sub/f.csv", f"there is no folder {tmp_path}/sub; make it first"),
            (folder, "is a folder; name a file"),
            (file / "f.csv", f"{file} is no folder"),
        ]:
            done = run_headrace("forecast", *words, name, *json_flag)
            assert done.returncode == 2, done.stdout + done.stderr
            assert str(name) in done.stdout + done.stderr
            assert reason in done.stdout + done.stderr, words
    assert not (tmp_path / "sub").exists()
    done = run_headrace("forecast", *commands[2], "f.txt")
    assert "f.txt: forecasts are written as .parquet, .csv or .csv.gz" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.csv"]


def test_a_model_tells_the_season_it_was_trained_with(
    tmp_path: Path, headrace_json, run_headrace
) -> None:
    lake = small_lake.good_lake(tmp_path)
    train = ["forecast", "train", lake, "--global", "--model", "g", "--season", "6"]
    headrace_json(*train, *small_lake.FAST)
    made = tmp_path / "made.csv"
    headrace_json("forecast", "predict", lake, "--model", "g", "--out", made)
    came = small_lake.columns(hours=small_lake.HOURS + small_lake.HORIZON)
    future = tmp_path / "came.parquet"
    pq.write_table(small_lake.table(came), future)
    words = ["forecast", "evaluate", made, "--history", lake, "--actuals", future]

    by_model = headrace_json(*words, "--model", "g")
    assert by_model["season"] == 6
    assert by_model == headrace_json(*words, "--season", "6")
    told = headrace_json(*words, "--model", "g", "--season", "24")
    assert told["season"] == 24 and told["deepar"]["mase"] != by_model["deepar"]["mase"]
    assert headrace_json(*words)["season"] == 24
    assert "season 6\n" in run_headrace(*words, "--model", "g").stdout

    model = forecast.train(lake, scope="global", season=6, **small_lake.TRAIN)
    forecasts = forecast.predict(model, lake)
    scores = forecast.evaluate(forecasts, lake, future)
    assert scores.totals["model"]["mase"] == by_model["deepar"]["mase"]
    by_frequency = forecast.evaluate(forecasts, lake, future, season=24)
    assert by_frequency.totals["model"]["mase"] == told["deepar"]["mase"]
