# SPDX-License-Identifier: Apache-2.0
"""`headrace forecast plot`: which bands it draws, what it says, which files it writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import small_lake


@pytest.fixture
def trained(tmp_path: Path, headrace_json) -> Path:
    lake = small_lake.good_lake(tmp_path)
    headrace_json("forecast", "train", lake, "--global", "--model", "g", *small_lake.FAST)
    headrace_json("forecast", "predict", lake, "--model", "g", "--out", "f.csv")
    return lake


def plot(lake: Path, forecasts: str = "f.csv", out: str = "p.svg") -> list[object]:
    return ["forecast", "plot", forecasts, "--item", "s1", "--history", lake, "--out", out]


def test_a_forecast_that_was_told_nothing_has_all_bands(
    trained: Path, tmp_path: Path, headrace_json, run_headrace
) -> None:
    assert headrace_json(*plot(trained)) == {"item": "s1", "out": "p.svg", "bands": [95, 80, 50]}
    drawn = (tmp_path / "p.svg").read_text()
    assert [drawn.count(f">{percent} %</title>") for percent in (95, 90, 80, 60, 50)] == [
        1, 0, 1, 0, 1,
    ]  # fmt: skip
    done = run_headrace(*plot(trained))
    assert done.stdout == "wrote p.svg: median, bands of 95, 80, 50 %\n"
    assert not done.stderr


def test_a_file_of_deciles_is_drawn_and_what_it_lacks_is_said(
    trained: Path, tmp_path: Path, run_headrace
) -> None:
    with (tmp_path / "f.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [n for n in rows[0] if not n.startswith("q") or len(n) == len("q0.1")]
    with (tmp_path / "old.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, kept, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    done = run_headrace(*plot(trained, "old.csv"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote p.svg: median, bands of 80 %\n"
    assert "bands of 95 and 50 % need the quantiles 0.025, 0.975, 0.25, 0.75" in done.stderr


@pytest.mark.parametrize("name", ["p.png", "p", "p.html"])
def test_a_plot_is_written_as_svg_alone(
    trained: Path, tmp_path: Path, run_headrace, name: str
) -> None:
    done = run_headrace(*plot(trained, out=name), "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"] == (
        f"{name}: plots are written as SVG; end its name in .svg"
    )
    assert not (tmp_path / name).exists()
