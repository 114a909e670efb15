# SPDX-License-Identifier: Apache-2.0
"""Stamps of another zone: what the messages advise works, and a model remembers it."""

from __future__ import annotations

import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
import small_lake
from headrace import forecast, registry

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def hourly(tmp_path: Path) -> Path:
    return small_lake.write(tmp_path / "lake/part-0.parquet", small_lake.table(zone=BERLIN.key))


def test_the_message_on_a_zone_names_the_option_that_helps(hourly: Path, run_headrace) -> None:
    train = ["forecast", "train", hourly, *small_lake.FAST, "--global", "--model", "g"]
    done = run_headrace(*train)
    assert done.returncode == 2
    assert "Europe/Berlin" in done.stderr
    assert "--zone UTC" in done.stderr and 'zone="UTC"' in done.stderr
    assert run_headrace(*train, "--zone", "UTC").returncode == 0


@pytest.mark.parametrize("scope", ["--global", "--local"])
def test_a_model_remembers_the_zone_it_was_trained_with(
    hourly: Path, tmp_path: Path, run_headrace, headrace_json, scope: str
) -> None:
    local = ["--global-members", 0] if scope == "--local" else []
    train = ["forecast", "train", hourly, *small_lake.FAST, scope, *local, "--zone", "UTC"]
    done = run_headrace(*train, "--model", "m")
    assert done.returncode == 0, done.stderr
    headrace_json("forecast", "predict", hourly, "--model", "m", "--out", "f.parquet")
    zone = ["--zone", "UTC"]
    headrace_json("forecast", "predict", hourly, "--model", "m", "--out", "g.parquet", *zone)
    assert pq.read_table(tmp_path / "f.parquet") == pq.read_table(tmp_path / "g.parquet")
    plot = ["forecast", "plot", "f.parquet", "--item", "s1", "--history", hourly]
    assert run_headrace(*plot, "--model", "m", "--out", "p.svg").returncode == 0

    name = "m" if scope == "--global" else "m/s1"
    model = registry.open(tmp_path / "registry").load(name)
    made = forecast.predict(model, hourly, items=["s1"])
    in_memory = forecast.predict(model, pq.read_table(hourly / "part-0.parquet"))
    assert made.to_arrow().schema.field("timestamp").type.tz == "UTC"
    rows = [row for row in in_memory.to_arrow().to_pylist() if row["item_id"] == "s1"]
    assert rows == made.to_arrow().to_pylist()


def test_a_model_of_stamps_without_a_zone_gives_such(tmp_path: Path, headrace_json) -> None:
    lake = small_lake.good_lake(tmp_path)
    headrace_json("forecast", "train", lake, *small_lake.FAST, "--global", "--model", "g")
    headrace_json("forecast", "predict", lake, "--model", "g", "--out", "f.parquet")
    assert pq.read_schema(tmp_path / "f.parquet").field("timestamp").type.tz is None


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_python_takes_the_zone_of_a_table_in_memory(hourly: Path, kind: str) -> None:
    rows: pa.Table | pandas.DataFrame = pq.read_table(hourly / "part-0.parquet")
    if kind == "pandas":
        rows = rows.to_pandas()
    options = {**small_lake.TRAIN, "scope": "global"}
    with pytest.raises(headrace.InvalidArgument, match='zone="UTC"'):
        forecast.train(rows, **options)
    model = forecast.train(forecast.Table(rows, zone="UTC"), **options)
    by_path = forecast.train(forecast.Table(hourly, zone="UTC"), **options)
    assert model.header == by_path.header
    with pytest.raises(headrace.InvalidArgument, match="Mars"):
        forecast.train(forecast.Table(rows, zone="Mars"), **options)


def midnights(path: Path) -> Path:
    """Days that begin in Berlin, over a change of the clock."""
    first = datetime.datetime(2026, 2, 1, tzinfo=BERLIN)
    days = [first + datetime.timedelta(days=k) for k in range(90)]
    stamps = pa.array(days, pa.timestamp("us", tz=BERLIN.key))
    target = [float(k % 7) for k in range(90)]
    return small_lake.write(
        path, pa.table({"item_id": ["a"] * 90, "timestamp": stamps, "target": target})
    )


def test_days_at_a_local_midnight_are_to_be_cut_to_dates(tmp_path: Path, run_headrace) -> None:
    lake = midnights(tmp_path / "lake" / "part-0.parquet")
    train = ["forecast", "train", lake, *small_lake.FAST, "--global", "--model", "g"]
    first = run_headrace(*train)
    assert first.returncode == 2
    assert "cut" in first.stderr and "dates" in first.stderr
    second = run_headrace(*train, "--zone", "UTC")
    assert second.returncode != 0
    assert "cut" in second.stderr and "dates" in second.stderr, second.stderr
    assert "convert" not in second.stderr and "--zone UTC" not in second.stderr, second.stderr
    with pytest.raises(headrace.Error, match="dates"):
        forecast.train(forecast.Table(lake, zone="UTC"), scope="global", **small_lake.TRAIN)

    table = pq.read_table(lake / "part-0.parquet").to_pandas()
    table["timestamp"] = table["timestamp"].dt.date
    pq.write_table(pa.Table.from_pandas(table), lake / "part-0.parquet")
    assert run_headrace(*train).returncode == 0


def test_files_of_several_zones_name_the_option_too(hourly: Path, run_headrace) -> None:
    small_lake.write(hourly / "part-1.parquet", small_lake.table(zone="UTC"))
    done = run_headrace("lake", "inspect", hourly)
    assert "--zone UTC" in done.stderr and 'zone="UTC"' in done.stderr, done.stderr
    (hourly.parent / "t.csv").write_text(
        "item_id,timestamp,target\na,2026-01-01T00:00:00+01:00,1\na,2026-01-01T01:00:00+02:00,2\n"
    )
    done = run_headrace("lake", "inspect", "t.csv")
    assert "--zone UTC" in done.stderr and 'zone="UTC"' in done.stderr, done.stderr
