# SPDX-License-Identifier: Apache-2.0
"""What the benchmark scripts share: M4 Hourly, plain metrics, CPU time of children."""

import argparse
import csv
import dataclasses
import datetime
import gzip
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
EXAMPLE = ROOT / "examples" / "m4_hourly"
LAKE = EXAMPLE / "lake"
SEASON, HORIZON, START = 24, 48, "2015-07-01 00:00:00"
LEVELS = [round(0.1 * k, 1) for k in range(1, 10)]
PARITY_ITEMS = (
    "H356 H68 H5 H379 H256 H34 H40 H93 H233 H4 H31 H150 H329 H221 H261 H108".split()  # noqa: SIM905
)


@dataclasses.dataclass
class Usage:
    """What one child process took."""

    cpu_seconds: float
    wall_seconds: float
    peak_mib: float
    stdout: str


def read_wide(name: str) -> dict[str, np.ndarray]:
    """One published file of M4 Hourly: values per item."""
    with gzip.open(EXAMPLE / name, "rt", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return {row[0]: np.array([float(cell) for cell in row[1:] if cell]) for row in rows}


def m4_hourly() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Training and test values per item."""
    return read_wide("Hourly-train.csv.gz"), read_wide("Hourly-test.csv.gz")


def run_child(
    command: Sequence[str],
    stdin: str = "",
    timeout_s: float = 3600.0,
    cwd: pathlib.Path | None = None,
) -> Usage:
    """Run to the end and return its CPU time with its children's; a failing child ends the script.

    One thread per process unless the command says otherwise, so that CPU times compare.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, str(ROOT / "benchmarks" / "measure.py"), *command]
    began = time.perf_counter()
    done = subprocess.run(
        launcher,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=cwd,
        env=environment,
        check=False,
    )
    wall = time.perf_counter() - began
    if done.returncode != 0:
        sys.exit(
            f"{' '.join(command[:4])} ended with {done.returncode}; its last lines:\n"
            + "\n".join(done.stderr.splitlines()[-15:])
        )
    usage = json.loads(done.stderr.splitlines()[-1])
    return Usage(usage["cpu_seconds"], wall, usage["peak_mib"], done.stdout)


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


def machine() -> dict:
    """Where and when a figure was measured."""
    model = "unknown"
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "date": datetime.date.today().isoformat(),
    }


def headrace_command() -> str:
    """Path of the command line tool: beside this Python, else on the path."""
    beside = pathlib.Path(sys.executable).with_name("headrace")
    found = str(beside) if beside.exists() else shutil.which("headrace")
    if not found:
        sys.exit("headrace is not installed beside this Python; run `make build` first")
    return found


def reference_python(given: str | None) -> str:
    """The Python that has gluonts, or an end with the commands that make one."""
    candidates = [given] if given else [sys.executable, str(ROOT / ".venv-reference/bin/python")]
    for candidate in candidates:
        probe = [candidate, "-c", "import importlib.util as u; assert u.find_spec('gluonts')"]
        if (
            pathlib.Path(candidate).exists()
            and not subprocess.run(probe, capture_output=True, check=False).returncode
        ):
            return candidate
    sys.exit(
        f"gluonts is not installed in {' or '.join(candidates)}; make an environment with:\n"
        "  python3 -m venv .venv-reference\n"
        "  .venv-reference/bin/pip install -r requirements-reference.txt\n"
        "or name one with --reference-python"
    )


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--reference-python", help="a Python that has gluonts and torch")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file too")
    return parser
