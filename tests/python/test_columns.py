# SPDX-License-Identifier: Apache-2.0
"""A model knows the columns it was trained on, and forecasts carry the user's names."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
import small_lake
from headrace import forecast, registry

NAMES = {"item_id": "store", "timestamp": "day", "target": "sales"}
FLAGS = ["--id", "store", "--time", "day", "--target", "sales"]


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    path = tmp_path / "sales.csv"
    small_lake.table().to_pandas().rename(columns=NAMES).to_csv(path, index=False)
    return path


def _ok(done) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _header(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file))


@pytest.mark.parametrize("scope", [["--global"], ["--global-members", "0"]])
def test_names_given_to_train_need_not_be_given_again(
    sales: Path, tmp_path: Path, run_headrace, scope: list[str]
) -> None:
    words = ["forecast", "train", sales, *FLAGS, *small_lake.FAST, *scope, "--model", "sales"]
    _ok(run_headrace(*words, "--dir", tmp_path / "runs"))

    out = tmp_path / "next.csv"
    _ok(run_headrace("forecast", "predict", sales, "--model", "sales", "--out", out))
    assert _header(out)[:4] == ["store", "day", "step", "mean"]
    for made in (tmp_path / "runs").rglob("forecasts.csv"):
        assert _header(made)[:2] == ["store", "day"]

    # Such a file is read again: its names stand for the columns of the tables too.
    words = ["forecast", "evaluate", out, "--history", sales, "--actuals"]
    actuals = tmp_path / "actuals.csv"
    later = pandas.read_csv(out).rename(columns={"mean": "sales"})[["store", "day", "sales"]]
    later.to_csv(actuals, index=False)
    _ok(run_headrace(*words, actuals, "--model", "sales"))
    _ok(run_headrace(*words, actuals, "--target", "sales"))
    words = ["forecast", "plot", out, "--item", "s0", "--history", sales, "--target", "sales"]
    _ok(run_headrace(*words, "--out", tmp_path / "s0.svg"))


def test_other_tables_may_have_other_names(sales: Path, tmp_path: Path, run_headrace) -> None:
    words = ["forecast", "train", sales, *FLAGS, *small_lake.FAST, "--global", "--model", "m"]
    _ok(run_headrace(*words))
    usual = tmp_path / "usual.csv"
    small_lake.table().to_pandas().to_csv(usual, index=False)
    out = tmp_path / "next.csv"
    words = ["forecast", "predict", "--model", "m", "--out", out]
    _ok(run_headrace(*words, usual))
    assert _header(out)[:2] == ["item_id", "timestamp"]

    third = tmp_path / "third.csv"
    names = {"item_id": "mean", "timestamp": "when", "target": "sales"}
    small_lake.table().to_pandas().rename(columns=names).to_csv(third, index=False)
    done = run_headrace(*words, third)
    assert done.returncode == 2
    assert 'there is no column "store"' in done.stderr  # what the model was trained on
    _ok(run_headrace(*words, third, "--id", "mean", "--time", "when"))
    assert _header(out)[:4] == ["item_id", "when", "step", "mean"]  # no two columns of a name


def test_a_warm_start_follows_the_names_too(sales: Path, tmp_path: Path, run_headrace) -> None:
    words = ["forecast", "train", sales, *small_lake.FAST]
    _ok(run_headrace(*words, *FLAGS, "--global", "--model", "all"))
    words += ["--warm-start", "all", "--model", "each", "--dir", tmp_path / "runs"]
    _ok(run_headrace(*words))
    r = registry.open(tmp_path / "registry")
    expected = {"id": "store", "time": "day", "target": "sales"}
    assert r.get("each/s0").header["columns"] == expected


def test_python_remembers_them_as_well(sales: Path) -> None:
    frame = pandas.read_csv(sales, parse_dates=["day"])
    named = {"id": "store", "time": "day", "target": "sales"}
    for source in (sales, frame):
        table = forecast.Table(source, **named)
        local = forecast.train(table, **small_lake.TRAIN)
        alike = forecast.train(table, scope="global", **small_lake.TRAIN)
        for models in (local, alike):
            made = pa.table(forecast.predict(models, source))
            assert made.column_names[:2] == ["store", "day"]
    with pytest.raises(headrace.Mismatch, match="none of the 3 items has a score"):
        forecast.evaluate(made, table, table)  # it holds nothing that came after it


def test_a_model_without_names_still_forecasts(sales: Path) -> None:
    model = forecast.train(small_lake.table(), scope="global", **small_lake.TRAIN)
    header = {k: v for k, v in model.header.items() if k != "columns"}  # as older files have it
    old = forecast.Model.from_parts(header, model.tensors)
    table = forecast.Table(sales, id="store", time="day", target="sales")
    assert pa.table(forecast.predict(old, table)).column_names[:2] == ["store", "day"]
    assert len(forecast.predict(old, small_lake.table())) == 3 * small_lake.HORIZON


def test_the_column_model_says_what_made_the_forecast(tmp_path: Path, run_headrace) -> None:
    lake = small_lake.good_lake(tmp_path)
    model = forecast.train(lake, scope="global", **small_lake.TRAIN)
    half = forecast.Model.from_parts(model.header | {"naive_share": 0.5}, model.tensors)
    assert set(pa.table(forecast.predict(model, lake))["model"].to_pylist()) == {"deepar"}
    made = pa.table(forecast.predict(half, lake))
    assert set(made["model"].to_pylist()) == {"deepar+naive"}
    with pytest.raises(headrace.Mismatch, match="nothing was judged"):  # it is read again
        forecast.evaluate(made, lake, lake)

    words = ["forecast", "train", lake, *small_lake.FAST, "--model", "m"]
    _ok(run_headrace(*words, "--dir", tmp_path / "runs"))
    made = pandas.read_csv(next((tmp_path / "runs").rglob("forecasts.csv")))
    r = registry.open(tmp_path / "registry")
    for item, group in made.groupby("item_id"):
        header = r.get(f"m/{item}").header
        mixed = "+naive" if header["naive_share"] > 0 else ""
        assert set(group["model"]) == {header["kind"] + mixed}


def test_forecasts_have_the_zone_of_their_table(tmp_path: Path, run_headrace) -> None:
    lake = small_lake.write(tmp_path / "lake/part-0.parquet", small_lake.table(zone="UTC"))
    words = ["forecast", "train", lake, *small_lake.FAST, "--model", "m", "--global-members", "0"]
    _ok(run_headrace(*words, "--dir", tmp_path / "run"))
    for name in ("f.parquet", "f.csv"):
        _ok(run_headrace("forecast", "predict", lake, "--model", "m", "--out", tmp_path / name))
    frames = [tmp_path / "f.parquet", tmp_path / "run/forecasts.parquet"]
    for path in frames:
        assert pq.read_schema(path).field("timestamp").type == pa.timestamp("us", tz="UTC"), path
    stamps = pandas.read_csv(tmp_path / "f.csv", parse_dates=["timestamp"])["timestamp"]
    assert str(stamps.dt.tz) == "UTC"
    assert (stamps == pandas.read_parquet(frames[0])["timestamp"]).all()
    model = registry.open(tmp_path / "registry").load("m/s0")
    made = pa.table(forecast.predict(model, lake))
    assert made.schema.field("timestamp").type.tz == "UTC"
    words = ["forecast", "plot", tmp_path / "f.csv", "--item", "s0", "--history", lake]
    _ok(run_headrace(*words, "--out", tmp_path / "p.svg"))


def test_without_pandas_a_frame_says_what_to_install(
    sales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"id": "store", "time": "day", "target": "sales"}
    table = forecast.Table(sales, **named)
    made = forecast.predict(forecast.train(table, **small_lake.TRAIN), table)
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    for frame in (made.to_pandas, registry.open(tmp_path / "r").to_pandas):
        with pytest.raises(ImportError, match=r"^pandas is not installed: pip install pandas$"):
            frame()
