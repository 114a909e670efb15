# SPDX-License-Identifier: Apache-2.0
"""Counts that are mostly 0: what training says of them, and forecasts that stay counts."""

from __future__ import annotations

from pathlib import Path

import pandas
import pyarrow.parquet as pq
import pytest

import small_lake


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    data = small_lake.columns()
    data["target"] = [float(k % 7 if k % 5 == 2 else 0) for k in range(len(data["target"]))]
    path = tmp_path / "counts.parquet"
    pq.write_table(small_lake.table(data), path)
    return path


def test_training_names_the_distribution_once_for_all_items(counts: Path, run_headrace) -> None:
    words = ["forecast", "train", counts, *small_lake.FAST, "--model", "m"]
    done = run_headrace(*words, "--global-members", "0")
    assert done.returncode == 0, done.stderr
    [line] = [x for x in done.stdout.splitlines() if "negative_binomial" in x]
    assert "3 items (s0, s1, s2)" in line and "% of the values are 0" in line

    done = run_headrace(*words, "--global-members", "0", "--distribution", "negative_binomial")
    assert "% of the values are 0" not in done.stdout + done.stderr


def test_averaged_forecasts_of_counts_are_not_negative(
    counts: Path, tmp_path: Path, run_headrace
) -> None:
    done = run_headrace(
        *("forecast", "train", counts, *small_lake.FAST, "--model", "m", "--dir", "runs"),
        *("--distribution", "negative_binomial"),
    )
    assert done.returncode == 0, done.stderr
    made = pandas.read_parquet(tmp_path / "runs/forecasts.parquet")
    assert (made["q0.025"] >= 0).all() and (made["mean"] >= 0).all()
