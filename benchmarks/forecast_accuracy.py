# SPDX-License-Identifier: Apache-2.0
"""Score headrace on M4 Hourly: in parity with GluonTS, or with the defaults of the example.

`parity`: a local model for each of 16 series with 3 seeds at GluonTS's budget and behaviour, paired
per series with the reference's scores. A ratio is the geometric mean over series of ours / theirs,
each the mean over seeds; its goal is one plus two standard errors, made of the reference's own
spread between seeds. `defaults`: the example pipeline as it is, all series, one run per seed; with
--cut at an earlier origin, on hours that no default was chosen on. `starts`: local models that
start from global ones, beside local models that start from nothing.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
from headrace_runs import (
    PARITY,
    read_quantiles,
    run_local,
    run_pipeline,
    start_pipeline,
    write_earlier,
    write_lake,
)
from m4_hourly import (
    EXAMPLE,
    HORIZON,
    LEVELS,
    PARITY_ITEMS,
    item_scores,
    m4_hourly,
    pooled,
    seasonal_naive,
)
from side_by_side import RESULTS, Figures, argument_parser, machine, reference_python

REFERENCE = RESULTS / "gluonts_m4_hourly_local.json"


def scores_of(quantiles: dict, train: dict, test: dict) -> dict[str, dict]:
    """Scores by item."""
    return {
        item: item_scores(train[item], test[item], {q: table[q] for q in LEVELS})
        for item, table in quantiles.items()
    }


def log_ratio(ours: dict[str, list], theirs: dict[str, list], name: str) -> tuple[float, float]:
    """Mean over series of log(ours / theirs), and its standard error out of the spread of seeds.

    The spread is the reference's, pooled over series, for both sides.
    """
    ratios, squares, freedom, error = [], 0.0, 0, 0.0
    for item, reference in theirs.items():
        own = np.array([score[name] for score in ours[item]])
        other = np.array([score[name] for score in reference])
        ratios.append(math.log(own.mean() / other.mean()))
        logs = np.log(other)
        squares += float(((logs - logs.mean()) ** 2).sum())
        freedom += len(logs) - 1
        error += 1 / len(own) + 1 / len(other)
    spread = squares / max(1, freedom)
    return float(np.mean(ratios)), math.sqrt(spread * error) / len(ratios)


def parity(options: object, figures: Figures) -> dict:
    """16 series, some seeds; the reference is trained first where it is missing."""
    if not (options.reuse and REFERENCE.exists()):
        python = reference_python(options.reference_python)
        script = pathlib.Path(__file__).with_name("gluonts_reference.py")
        subprocess.run([sys.executable, script, "--reference-python", python], check=True)
    runs = json.loads(REFERENCE.read_text())["runs"]
    theirs = {item: [runs[f"{item}/{seed}"] for seed in (1, 2, 3)] for item in PARITY_ITEMS}
    train, test = m4_hourly()
    ours: dict[str, list] = {item: [] for item in PARITY_ITEMS}
    seconds = 0.0
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            usage, quantiles = run_local(
                PARITY_ITEMS, {**PARITY, "seed": seed}, pathlib.Path(folder), slots=2
            )
        seconds += usage.cpu_seconds
        for item, score in scores_of(quantiles, train, test).items():
            ours[item].append(score)
        print(f"seed {seed}: {usage.cpu_seconds:.0f} s of CPU", flush=True)
    for name, title in (("wql", "wQL"), ("mase", "MASE")):
        mean, error = log_ratio(ours, theirs, name)
        note = f"geometric mean, 16 series, {options.seeds} and 3 seeds"
        goal = round(math.exp(2 * error), 3)
        figures.add(f"parity: {title}, headrace / GluonTS", math.exp(mean), goal, False, note=note)
    for side, table in (("headrace", ours), ("GluonTS", theirs)):
        everything = pooled([score for scores in table.values() for score in scores])
        figures.add(f"parity: coverage at 80 %, {side}", everything["coverage_80"], unit="%")
    stored = sum(score["train_cpu_seconds"] for scores in theirs.values() for score in scores)
    figures.add("parity: CPU a model, headrace", seconds / options.seeds / 16, unit="s")
    figures.add("parity: CPU a model, GluonTS tuned (stored)", stored / 48, unit="s")
    return ours


def defaults(options: object, figures: Figures) -> dict:
    """The example pipeline, once per seed; goals are those of the issue for all series."""
    train, test = m4_hourly()
    if options.cut:
        test = {i: train[i][-options.cut :][:HORIZON] for i in train}
        train = {i: train[i][: -options.cut] for i in train}
    items = sorted(train)[: options.items or None]
    found, usages = [], []
    kept = {}
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            parameters = {"seed": seed}
            if options.items:
                write_lake(items, folder / "lake.parquet")
                parameters["table"] = folder / "lake.parquet"
            if options.cut:
                parameters |= write_earlier(options.cut, folder)
            usage = run_pipeline(EXAMPLE / "pipeline.json", folder, parameters)
            scores = scores_of(read_quantiles(folder), train, test)
        kept[str(seed)] = scores
        found.append(pooled(list(scores.values())))
        usages.append(usage)
        told = ", ".join(f"{name} {value:.4f}" for name, value in found[-1].items())
        print(f"seed {seed}: {told}", flush=True)
    naive = pooled([item_scores(train[i], test[i], seasonal_naive(train[i])) for i in items])
    report(
        figures,
        found,
        naive,
        f"{len(items)} series, {options.seeds} seeds, {options.cut} hours early",
    )
    figures.add("defaults: CPU of a run", np.mean([one.cpu_seconds for one in usages]), unit="s")
    wall = float(np.median([one.wall_seconds for one in usages]))
    figures.add("defaults: wall time of a run, median", wall, 360, False, unit="s")
    peak = max(one.peak_mib for one in usages)
    figures.add("defaults: peak memory of a run", peak, 1024, False, unit="MiB")
    return kept


def starts(options: object, figures: Figures) -> dict:
    """Local models of every ninth series, started from the global ones and from nothing."""
    train, test = m4_hourly()
    items = sorted(train)[::9]
    kept: dict[str, dict] = {"warm": {}, "cold": {}}
    for seed in range(1, options.seeds + 1):
        for name, runs in kept.items():
            with tempfile.TemporaryDirectory() as path:
                folder = pathlib.Path(path)
                pipeline = folder / "pipeline.json"
                pipeline.write_text(json.dumps(start_pipeline(items, name == "warm")))
                usage = run_pipeline(pipeline, folder, {"seed": seed})
                runs[str(seed)] = scores_of(read_quantiles(folder), train, test)
            told = pooled(list(runs[str(seed)].values()))
            words = ", ".join(f"{key} {value:.4f}" for key, value in told.items())
            print(f"seed {seed}, {name}: {words}, CPU {usage.cpu_seconds:.0f} s", flush=True)
    for key in ("mean_wql", "mean_item_wql", "mean_mase", "median_mase", "coverage_80"):
        for name, runs in kept.items():
            values = [pooled(list(scores.values()))[key] for scores in runs.values()]
            note = f"{len(items)} series, {options.seeds} seeds"
            figures.add(f"starts: {key}, {name}", float(np.mean(values)), note=note)
    return kept


def report(figures: Figures, found: Sequence[dict], naive: dict, note: str) -> None:
    """Figures of all seeds beside their goals and beside seasonal naive."""
    quantile_losses = [one["mean_wql"] for one in found]
    figures.add(
        "defaults: mean_wQL, mean over seeds", np.mean(quantile_losses), 0.033, False, note=note
    )
    figures.add("defaults: mean_wQL, worst seed", max(quantile_losses), 0.040, False)
    figures.add("defaults: mean_wQL of seasonal naive", naive["mean_wql"])
    mases = [one["median_mase"] for one in found]
    figures.add("defaults: median MASE, mean over seeds", np.mean(mases), 1.0, False)
    figures.add("defaults: mean MASE", np.mean([one["mean_mase"] for one in found]))
    figures.add("defaults: mean MASE of seasonal naive", naive["mean_mase"])
    figures.add("defaults: mean of items' wQL", np.mean([one["mean_item_wql"] for one in found]))
    figures.add("defaults: the same of seasonal naive", naive["mean_item_wql"])
    coverages = [one["coverage_80"] for one in found]
    figures.add("defaults: coverage at 80 %, least", min(coverages), 72, unit="%")
    figures.add("defaults: coverage at 80 %, most", max(coverages), 88, False, unit="%")


def main() -> int:
    """Score, print, and keep the scores of each item under benchmarks/results/."""
    parser = argument_parser(__doc__)
    parser.add_argument("protocol", choices=("parity", "defaults", "starts"))
    parser.add_argument("--seeds", type=int, help="default: 3, 5 for defaults")
    parser.add_argument("--items", type=int, default=0, help="defaults: only the first so many")
    parser.add_argument(
        "--cut", type=int, default=0, help="defaults: forecast from so many hours before the end"
    )
    parser.add_argument("--reuse", action="store_true", help="parity: take stored reference scores")
    parser.add_argument("--keep", type=pathlib.Path, help="write the scores of each item here")
    options = parser.parse_args()
    if options.items and options.cut:
        parser.error("--items and --cut exclude each other")
    if options.cut and options.cut < HORIZON:
        parser.error(f"--cut must be {HORIZON} at least: the hours to forecast come out of it")
    options.seeds = options.seeds or {"parity": 3, "defaults": 5, "starts": 3}[options.protocol]
    figures = Figures()
    scores = {"parity": parity, "defaults": defaults, "starts": starts}[options.protocol](
        options, figures
    )
    if options.keep:
        document = {"machine": machine(), "protocol": options.protocol, "scores": scores}
        options.keep.write_text(json.dumps(document, indent=1) + "\n")
    return figures.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
