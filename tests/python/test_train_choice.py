# SPDX-License-Identifier: Apache-2.0
"""What `headrace forecast train` takes for each item, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

import small_lake
from headrace import forecast


class Trained:
    """One `forecast train` on a lake, in a folder of its own."""

    def __init__(self, run_headrace, lake: Path, folder: Path, *words: str | Path) -> None:
        self.folder = folder
        self.done = run_headrace(
            "forecast", "train", lake, "--model", "m", *small_lake.FAST, *words, "--dir", folder
        )
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        self.summary: dict[str, Any] = json.loads((folder / "evaluation.json").read_text())[
            "summary"
        ]
        self.forecasts = pandas.read_parquet(folder / "forecasts.parquet")


@pytest.mark.parametrize(
    "words",
    [["--parity"], ["--parity", "--global-members", "0"], ["--validation-windows", "0"]],
    ids=" ".join,
)
def test_a_training_that_holds_nothing_back_gives_the_local_models(
    words: list[str], run_headrace, tmp_path: Path
) -> None:
    trained = Trained(run_headrace, small_lake.good_lake(tmp_path), tmp_path / "run", *words)

    assert trained.summary["winners"] == {"local": len(small_lake.ITEMS)}
    assert set(trained.forecasts["model"]) == {"deepar"}
    assert len(trained.forecasts) == len(small_lake.ITEMS) * small_lake.HORIZON


def test_a_refit_comes_after_the_choice(run_headrace, tmp_path: Path) -> None:
    lake = small_lake.good_lake(tmp_path)
    judged = Trained(run_headrace, lake, tmp_path / "a")
    again = Trained(run_headrace, lake, tmp_path / "b", "--refit", "full")

    assert again.summary["winners"] == judged.summary["winners"]
    assert again.summary["as_chosen"] == judged.summary["as_chosen"]


def _spoilt_lake(folder: Path) -> Path:
    """Three waves, one of zeros, one that ends in zeros, one with gaps and hardly a value."""
    names = [*small_lake.ITEMS, "zero", "asleep", "gaps"]
    data = small_lake.columns(names)
    hours = small_lake.HOURS
    for k in range(hours):
        data["target"][3 * hours + k] = 0.0
        data["target"][4 * hours + k] = 5.0 if k < 60 and k % 7 == 0 else 0.0
        data["target"][5 * hours + k] = float(k) if k % 30 == 29 else None
    return small_lake.write(folder / "lake" / "part-0.parquet", small_lake.table(data))


def test_zeros_are_forecast_as_zeros_and_what_is_noted_reaches_everyone(
    run_headrace, tmp_path: Path
) -> None:
    trained = Trained(run_headrace, _spoilt_lake(tmp_path), tmp_path / "run")

    rows = trained.forecasts.set_index("item_id")
    assert set(rows.loc["zero", "model"]) == {"last_value"}
    assert (rows.loc["zero"][["mean", "q0.025", "q0.975"]] == 0).all(axis=None)
    assert set(rows.loc["asleep", "model"]) == {"seasonal_naive"}

    few = "only 3.3 % of 150 values are observed"
    assert f'note: item "gaps": {few}\n' in trained.done.stdout
    assert 'note: item "zero": all observed values are equal' in trained.done.stdout
    assert few in (tmp_path / "run" / "report.html").read_text()
    assert few in run_headrace("flow", "logs", tmp_path / "run", "--item", "gaps").stdout
    assert "nan" not in trained.done.stdout
    naive2 = next(x for x in trained.done.stdout.splitlines() if x.startswith("Naive2 (intervals)"))
    assert naive2.split()[2] == "-"  # for comparison: it is not chosen
    assert trained.summary["naive2"]["items"] == 6


def test_a_backtest_names_items_without_a_mase_and_notes_once(
    run_headrace, headrace_json, tmp_path: Path
) -> None:
    lake = _spoilt_lake(tmp_path)
    words = ["forecast", "backtest", lake, *small_lake.FAST]
    done = run_headrace(*words)
    assert done.returncode == 0, done.stderr
    assert "1 item is constant before the forecast and has no MASE: zero\n" in done.stdout
    noted = done.stderr.splitlines()
    assert len(noted) == len(set(noted))
    assert any(line.startswith("5 items (s0, s1, s2, asleep, gaps)") for line in noted)

    told = headrace_json(*words)
    assert told["constant_items"] == ["zero"]
    assert told["unscaled_items"] == ["gaps"]
    scores = forecast.backtest(str(lake), **small_lake.TRAIN)
    assert scores.constant_items == ["zero"]
    assert len(scores.notes) == len(set(scores.notes))


def test_a_series_too_short_for_a_model_of_its_own_is_flagged_as_global(
    run_headrace, tmp_path: Path
) -> None:
    data = small_lake.columns([*small_lake.ITEMS, "short"])
    keep = len(data["item_id"]) - small_lake.HOURS + small_lake.HORIZON
    data = {name: values[:keep] for name, values in data.items()}
    lake = small_lake.write(tmp_path / "lake" / "part-0.parquet", small_lake.table(data))
    trained = Trained(run_headrace, lake, tmp_path / "run")
    rows = trained.forecasts.set_index("item_id")
    assert set(rows.loc["short", "model"]) == {"global"}

    for model in ("m", "m/short"):
        out = tmp_path / "f.csv"
        done = run_headrace("forecast", "predict", lake, "--model", model, "--out", out)
        assert done.returncode == 0, done.stderr
        again = pandas.read_csv(out).set_index("item_id")
        assert set(again.loc["short", "model"]) == {"global"}

    options = {**small_lake.TRAIN, "epochs": 1}
    start = forecast.train(str(lake), scope="global", **options)
    models = forecast.train(str(lake), warm_start=start, **options)
    frame = forecast.predict(models, str(lake)).to_pandas().set_index("item_id")
    assert set(frame.loc["short", "model"]) == {"global"}
    assert set(frame.loc["s0", "model"]) == {"deepar"}
    frame = forecast.predict(start, str(lake)).to_pandas()
    assert set(frame["model"]) == {"deepar"}
    cold = forecast.train(str(lake), **options)
    frame = forecast.predict(cold, str(lake)).to_pandas().set_index("item_id")
    assert set(frame.loc["short", "model"]) == {"last_value"}


def test_whole_numbers_as_item_ids_stay_numbers(run_headrace, tmp_path: Path) -> None:
    data = small_lake.columns()
    data["item_id"] = [7 + small_lake.ITEMS.index(item) for item in data["item_id"]]
    lake = small_lake.write(tmp_path / "lake" / "part-0.parquet", small_lake.table(data))
    source = pandas.read_parquet(lake)
    trained = Trained(run_headrace, lake, tmp_path / "run")
    out, scores = tmp_path / "f.parquet", tmp_path / "scores.parquet"
    done = run_headrace("forecast", "predict", lake, "--model", "m", "--out", out)
    assert done.returncode == 0, done.stderr
    words = ["--history", lake, "--actuals", lake, "--per-item", scores]
    done = run_headrace("forecast", "evaluate", out, *words)  # what came is not there yet
    assert "no actual value lies in the forecast's range" in done.stderr
    done = run_headrace("forecast", "backtest", lake, *small_lake.FAST, "--per-item", scores)
    assert done.returncode == 0, done.stderr

    models = forecast.train(str(lake), **small_lake.TRAIN)
    frames = [
        trained.forecasts,
        pandas.read_parquet(out),
        pandas.read_parquet(scores),
        forecast.predict(models, str(lake)).to_pandas(),
        forecast.backtest(str(lake), **small_lake.TRAIN).items.to_pandas(),
    ]
    for frame in frames:
        assert frame["item_id"].dtype == source["item_id"].dtype
        assert set(frame["item_id"]) == {7, 8, 9}
