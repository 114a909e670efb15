# SPDX-License-Identifier: Apache-2.0
"""M4 Hourly as the benchmarks read it, and scores in their plainest form."""

import csv
import gzip
import pathlib
from collections.abc import Sequence

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "m4_hourly"
LAKE = EXAMPLE / "lake"
SEASON, HORIZON, START = 24, 48, "2015-07-01 00:00:00"
LEVELS = [round(0.1 * k, 1) for k in range(1, 10)]
PARITY_ITEMS = (
    "H356 H68 H5 H379 H256 H34 H40 H93 H233 H4 H31 H150 H329 H221 H261 H108".split()  # noqa: SIM905
)


def read_wide(name: str) -> dict[str, np.ndarray]:
    """One published file of M4 Hourly: values per item."""
    with gzip.open(EXAMPLE / name, "rt", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return {row[0]: np.array([float(cell) for cell in row[1:] if cell]) for row in rows}


def m4_hourly() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Training and test values per item."""
    return read_wide("Hourly-train.csv.gz"), read_wide("Hourly-test.csv.gz")


def item_scores(train: np.ndarray, actual: np.ndarray, quantiles: dict[float, np.ndarray]) -> dict:
    """Scores of one item, and the sums that pooled scores are made of."""
    naive = np.abs(train[SEASON:] - train[:-SEASON]).mean()
    median = quantiles[0.5]
    losses = [
        float(2 * np.maximum(q * (actual - quantiles[q]), (q - 1) * (actual - quantiles[q])).sum())
        for q in LEVELS
    ]
    size = float(np.abs(actual).sum())
    return {
        "mase": float(np.abs(actual - median).mean() / naive) if naive > 0 else None,
        "smape": float(200 * np.mean(np.abs(actual - median) / (np.abs(actual) + np.abs(median)))),
        "wql": float(np.mean(losses)) / size,
        "quantile_loss": float(np.mean(losses)),
        "abs_sum": size,
        "inside_80": int(((quantiles[0.1] <= actual) & (actual <= quantiles[0.9])).sum()),
        "cells": len(actual),
    }


def pooled(scores: Sequence[dict]) -> dict:
    """Scores over items: mean_wQL weighs by size, the means do not."""
    mases = [score["mase"] for score in scores if score["mase"] is not None]
    return {
        "mean_wql": sum(s["quantile_loss"] for s in scores) / sum(s["abs_sum"] for s in scores),
        "mean_item_wql": float(np.mean([s["wql"] for s in scores])),
        "median_mase": float(np.median(mases)),
        "mean_mase": float(np.mean(mases)),
        "mean_smape": float(np.mean([s["smape"] for s in scores])),
        "coverage_80": 100 * sum(s["inside_80"] for s in scores) / sum(s["cells"] for s in scores),
    }


def seasonal_naive(train: np.ndarray) -> dict[float, np.ndarray]:
    """The last season repeated, the same value for every quantile."""
    repeated = np.tile(train[-SEASON:], HORIZON // SEASON)
    return dict.fromkeys(LEVELS, repeated)
