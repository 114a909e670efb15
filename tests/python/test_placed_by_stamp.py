# SPDX-License-Identifier: Apache-2.0
"""A plot and an evaluation go by stamps, and take of --model what predict takes of it."""

from __future__ import annotations

import csv
import datetime
import json
import re
from pathlib import Path

import pytest

import small_lake

START = datetime.datetime(2026, 3, 1)
PAST, HORIZON = 150, small_lake.HORIZON


def value(k: int) -> float:
    return 10.0 + k % 24


def long(path: Path, first: int, last: int, item: str = "s1") -> Path:
    """Hours [first, last) of one item; each hour has its own value of the day."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item_id", "timestamp", "target"])
        for k in range(first, last):
            rows.writerow([item, (START + datetime.timedelta(hours=k)).isoformat(), value(k)])
    return path


def wide(path: Path, first: int, last: int) -> Path:
    names = ["id", *(f"V{k}" for k in range(1, last - first + 1))]
    row = ["s1", *(value(k) for k in range(first, last))]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, row])
    return path


@pytest.fixture
def folder(tmp_path: Path, headrace_json) -> Path:
    past = long(tmp_path / "past.csv", 0, PAST)
    headrace_json("forecast", "train", past, "--global", "--model", "g", *small_lake.FAST)
    headrace_json("forecast", "predict", past, "--model", "g", "--out", "f.csv")
    return tmp_path


def points(svg: str, colour: str) -> list[tuple[float, float]]:
    """Of the first line of a colour: its points."""
    path = re.search(rf'<path d="([^"]*)" fill="none" stroke="{colour}"', svg)
    assert path, colour
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", path[1])]


HISTORY, MEDIAN, ACTUAL = "#6b7685", "#2463d6", "#1b2430"


def plot(run, history: Path, *words: object):
    return run(
        "forecast", "plot", "f.csv", "--item", "s1", "--history", history, "--out", "p.svg", *words
    )


def test_a_history_that_has_grown_does_not_move_the_forecast(folder: Path, run_headrace) -> None:
    drawn = {}
    for grown in (0, 5, HORIZON, 40):
        history = long(folder / "grown.csv", 0, PAST + grown)
        done = plot(run_headrace, history)
        assert done.returncode == 0, done.stderr
        svg = (folder / "p.svg").read_text()
        drawn[grown] = points(svg, MEDIAN)
        past = points(svg, HISTORY)
        beyond = [x for x, _ in past if x >= drawn[grown][0][0] - 0.01]
        assert len(beyond) == min(grown, HORIZON)  # those lie under the forecast
    assert len({tuple(x for x, _ in line) for line in drawn.values()}) == 1


def test_actuals_are_drawn_where_their_stamps_are(folder: Path, run_headrace) -> None:
    history = long(folder / "grown.csv", 0, PAST + 5)
    came = long(folder / "came.csv", PAST + 3, PAST + HORIZON)

    done = plot(run_headrace, history, "--actuals", came)

    assert done.returncode == 0, done.stderr
    svg = (folder / "p.svg").read_text()
    median = points(svg, MEDIAN)
    lines = [points("<" + one, ACTUAL) for one in svg.split("<") if ACTUAL in one and " d=" in one]
    xs = [x for line in lines for x, _ in line if x >= median[0][0] - 0.01]
    assert xs == [x for x, _ in median[3:]]


@pytest.mark.parametrize(("first", "last"), [(0, PAST - 3), (PAST + HORIZON, PAST + 80)])
def test_a_forecast_apart_from_the_history_is_refused_with_both_ranges(
    folder: Path, run_headrace, first: int, last: int
) -> None:
    done = plot(run_headrace, long(folder / "other.csv", first, last))

    assert done.returncode == 2, done.stdout
    assert "2026-03-07 06:00:00 to 2026-03-07 17:00:00" in done.stderr, done.stderr
    held = [START + datetime.timedelta(hours=k) for k in (first, last - 1)]
    assert f"{held[0]} to {held[1]}" in done.stderr, done.stderr
    assert not (folder / "p.svg").exists()


def test_actuals_that_miss_the_forecast_are_refused_with_both_ranges(
    folder: Path, run_headrace
) -> None:
    came = long(folder / "came.csv", PAST + 20, PAST + 30)
    done = plot(run_headrace, folder / "past.csv", "--actuals", came)
    assert done.returncode == 2, done.stdout
    assert "2026-03-07 06:00:00 to 2026-03-07 17:00:00" in done.stderr
    assert "2026-03-08 02:00:00 to 2026-03-08 11:00:00" in done.stderr


WIDE = ["--format", "wide_csv"]


def test_a_wide_history_is_placed_by_its_start_or_the_models(
    folder: Path, run_headrace, headrace_json
) -> None:
    table = wide(folder / "wide.csv", 0, PAST)
    hourly = [*WIDE, "--frequency", "h"]
    done = plot(run_headrace, table, *hourly)
    assert done.returncode == 2, done.stdout
    assert "--start" in done.stderr and "--model" in done.stderr and "1970-01-01" in done.stderr
    assert plot(run_headrace, table, *hourly, "--start", "2026-03-01").returncode == 0

    train = ["forecast", "train", table, *hourly, "--start", "2026-03-01", "--global"]
    headrace_json(*train, "--model", "w", *small_lake.FAST)
    done = plot(run_headrace, table, *WIDE, "--model", "w")  # its frequency and its start
    assert done.returncode == 0, done.stderr


def test_an_evaluation_takes_frequency_and_start_of_the_model(
    folder: Path, run_headrace, headrace_json
) -> None:
    table = wide(folder / "wide.csv", 0, PAST)
    came = wide(folder / "came.csv", PAST, PAST + HORIZON)
    at = ["--frequency", "h", "--start", "2026-03-01"]
    train = ["forecast", "train", table, *WIDE, *at, "--global", "--model", "w"]
    headrace_json(*train, *small_lake.FAST)
    evaluate = ["forecast", "evaluate", "f.csv", "--history", table, "--actuals", came, *WIDE]
    assert headrace_json(*evaluate, "--model", "w")["items"] == 1

    done = run_headrace(*evaluate, "--frequency", "h")
    assert done.returncode == 1
    assert "nothing was judged" in done.stderr
    assert "--start" in done.stderr and "--model" in done.stderr


def test_actuals_may_have_another_format_than_the_history(
    folder: Path, run_headrace, headrace_json
) -> None:
    table = wide(folder / "wide.csv", 0, PAST)
    came = long(folder / "came.csv", PAST, PAST + HORIZON)
    parquet = small_lake.write(
        folder / "came" / "came.parquet",
        small_lake.table(
            {
                "item_id": ["s1"] * HORIZON,
                "timestamp": [START + datetime.timedelta(hours=PAST + k) for k in range(HORIZON)],
                "target": [value(PAST + k) for k in range(HORIZON)],
            }
        ),
    )
    hidden = folder / "came.dat"  # nothing but its first bytes says what it is
    hidden.write_bytes((parquet / "came.parquet").read_bytes())
    at = [*WIDE, "--frequency", "h", "--start", "2026-03-01"]
    evaluate = ["forecast", "evaluate", "f.csv", "--history", table, *at]
    expected = headrace_json(
        "forecast", "evaluate", "f.csv", "--history", folder / "past.csv", "--actuals", came
    )
    for actuals in (parquet, parquet / "came.parquet", hidden):
        assert headrace_json(*evaluate, "--actuals", actuals) == expected, actuals
    told = ["--actuals", came, "--actuals-format", "csv"]
    assert headrace_json(*evaluate, *told) == expected
    assert plot(run_headrace, table, *at, *told).returncode == 0

    train = ["forecast", "train", table, *at, *told, *small_lake.FAST, "--global-members", 0]
    done = run_headrace(*train, "--dir", "run", "--model", "each")
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "run" / "evaluation.json").read_text())["summary"]
    assert summary["judged_on"] == "actuals", summary


def test_a_folder_of_several_formats_is_read_as_it_is_told(folder: Path, headrace_json) -> None:
    came = folder / "came"
    came.mkdir()
    long(came / "came.csv", PAST, PAST + HORIZON)
    small_lake.write(came / "other.parquet", small_lake.table())  # what the name alone would take
    evaluate = ["forecast", "evaluate", "f.csv", "--history", folder / "past.csv"]
    told = headrace_json(*evaluate, "--actuals", came, "--format", "csv")
    assert told["judged_steps"] == HORIZON


def test_a_parquet_file_that_is_read_as_text_is_called_one(folder: Path, run_headrace) -> None:
    lake = small_lake.good_lake(folder)
    renamed = folder / "renamed.csv"
    renamed.write_bytes((lake / "part-0.parquet").read_bytes())
    done = run_headrace("lake", "head", renamed)
    assert done.returncode != 0
    assert "Parquet" in done.stderr and "iconv" not in done.stderr, done.stderr


def test_an_evaluation_says_of_how_many_steps_it_is(
    folder: Path, run_headrace, headrace_json
) -> None:
    evaluate = ["forecast", "evaluate", "f.csv", "--history", folder / "past.csv", "--actuals"]
    half = long(folder / "half.csv", PAST, PAST + 6)
    whole = long(folder / "whole.csv", PAST, PAST + HORIZON)
    told = headrace_json(*evaluate, half)
    assert (told["judged_steps"], told["forecast_steps"]) == (6, HORIZON)
    assert f"6 of {HORIZON} steps judged" in run_headrace(*evaluate, half).stdout
    told = headrace_json(*evaluate, whole)
    assert (told["judged_steps"], told["forecast_steps"]) == (HORIZON, HORIZON)
    assert "steps judged" not in run_headrace(*evaluate, whole).stdout
