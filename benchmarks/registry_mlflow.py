# SPDX-License-Identifier: Apache-2.0
"""Register models of 110 KB with 5 metrics and 5 params: headrace.registry and MLflow, in turns.

MLflow's side is its client in this process on its SQLite store, without a server and without a sync
of its own; ours syncs every file and every transaction. Figures are models per second as ratios.
With --large also the figures of a registry of 100,000 models.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from side_by_side import ROOT, Figures, argument_parser

sys.path.insert(0, str(ROOT / "python"))
from headrace import registry

FLOATS = 27_500  # 110 KB
METRICS = {f"metric{i}": 0.1 * i for i in range(5)}
PARAMS = {f"param{i}": str(i) for i in range(5)}

MLFLOW_SIDE = """
import json, os, pathlib, sys, tempfile, time
import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
uri = f"sqlite:///{folder}/mlflow.db"
client = MlflowClient(uri, uri)
experiment = client.create_experiment("bench", artifact_location=str(folder / "artifacts"))
client.create_registered_model("model")
payload = folder / "model.safetensors"
payload.write_bytes(os.urandom(110_000))
def one(i):
    run = client.create_run(experiment).info.run_id
    client.log_batch(run, metrics=[Metric(f"metric{k}", 0.1 * k, 0, 0) for k in range(5)],
                     params=[Param(f"param{k}", str(k)) for k in range(5)])
    client.log_artifact(run, str(payload), "model")
    client.create_model_version("model", f"{folder}/artifacts/{run}/artifacts/model", run)
    client.set_terminated(run)
one(0)
start = time.perf_counter()
for i in range(count):
    one(i)
print(json.dumps(count / (time.perf_counter() - start)))
"""


def mlflow_rate(python: str, folder: pathlib.Path, count: int) -> float:
    folder.mkdir()
    done = subprocess.run(
        [python, "-c", MLFLOW_SIDE, str(folder), str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1]))


def weights(i: int) -> dict[str, np.ndarray]:
    return {"w": np.full(FLOATS, i, "f4")}


def details(i: int) -> dict[str, object]:
    return {"metrics": METRICS, "params": PARAMS, "run": "bench", "item": str(i)}


def single_rate(folder: pathlib.Path, count: int, first: int = 0) -> float:
    r = registry.open(folder, push_to=())
    start = time.perf_counter()
    for i in range(first, first + count):
        r.add(f"m/{i}", weights(i), **details(i))
    return count / (time.perf_counter() - start)


def batch_rate(folder: pathlib.Path, count: int) -> float:
    r = registry.open(folder, push_to=())
    start = time.perf_counter()
    for begin in range(0, count, 256):
        some = range(begin, min(begin + 256, count))
        r.add_all([{"name": f"m/{i}", "model": weights(i), **details(i)} for i in some])
    return count / (time.perf_counter() - start)


def bundle_rate(folder: pathlib.Path, count: int) -> float:
    r = registry.open(folder, push_to=())
    start = time.perf_counter()
    with r.bundle("bench", "deepar", {"w": (FLOATS,)}) as bundle:
        for i in range(count):
            bundle.add(f"m/{i}", str(i), weights(i), metrics=METRICS, params=PARAMS)
            if i % 256 == 255:
                bundle.flush()
    return count / (time.perf_counter() - start)


def one_of_many(folder: str, count: int, process: int, begin: object, queue: object) -> None:
    r = registry.open(folder, push_to=())
    begin.wait(600)
    worst = 0.0
    for i in range(count):
        start = time.perf_counter()
        r.add(f"m/{i}", metrics=METRICS, params=PARAMS, run=f"r{process}", item=str(i))
        worst = max(worst, time.perf_counter() - start)
    queue.put(worst)


def rows_only(folder: pathlib.Path, processes: int, count: int) -> tuple[float, float]:
    """Rate and worst wait of `processes` that together add `count` versions without files."""
    registry.open(folder, push_to=())
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    begin = context.Barrier(processes + 1)  # starting Python is not what is measured
    each = count // processes
    children = [
        context.Process(target=one_of_many, args=(str(folder), each, p, begin, queue))
        for p in range(processes)
    ]
    for child in children:
        child.start()
    begin.wait(600)
    start = time.perf_counter()
    worst = max(queue.get(timeout=600) for _ in children)
    taken = time.perf_counter() - start
    for child in children:
        child.join(60)
    return each * processes / taken, worst


def side_by_side(figures: Figures, options: object, work: pathlib.Path) -> None:
    """All ways in turns, the median of the ratios counts."""
    ratios: dict[str, list[float]] = {"single": [], "batch of 256": [], "bundle": []}
    for turn in range(options.turns):
        theirs = mlflow_rate(options.mlflow_python, work / f"mlflow{turn}", options.theirs)
        for name, run, count in (
            ("single", single_rate, options.ours // 10),
            ("batch of 256", batch_rate, options.ours),
            ("bundle", bundle_rate, options.ours),
        ):
            folder = work / "ours"
            rate = run(folder, count)
            ratios[name].append(rate / theirs)
            print(f"turn {turn}: MLflow {theirs:.1f}/s, {name} {rate:.0f}/s", flush=True)
            shutil.rmtree(folder)
    for name, goal in (("single", 8), ("batch of 256", 30), ("bundle", 100)):
        value = statistics.median(ratios[name])
        figures.add(f"registry: {name} against MLflow SQLite", value, goal, unit="x")


def many_writers(figures: Figures, options: object, work: pathlib.Path) -> None:
    ratios = []
    worsts = []
    for turn in range(options.turns):
        one, _ = rows_only(work / f"one{turn}", 1, options.ours // 4)
        many, worst = rows_only(work / f"many{turn}", 16, options.ours // 4)
        print(f"turn {turn}: 1 process {one:.0f}/s, 16 processes {many:.0f}/s, worst {worst:.3f} s")
        ratios.append(many / one)
        worsts.append(worst)
    figures.add("registry: 16 processes against one", statistics.median(ratios), 0.8, unit="x")
    figures.add("registry: worst wait of 16", min(worsts) * 1000, 250, at_least=False, unit="ms")


def best(call: object, tries: int = 5) -> float:
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def large(figures: Figures, work: pathlib.Path, count: int) -> None:
    """A registry of `count` models with 5 metrics and 5 params each."""
    folder = work / "large"
    r = registry.open(folder, push_to=())
    for begin in range(0, count, 5000):
        r.add_all(
            [
                {
                    "name": f"m4/{i:06}",
                    "metrics": {f"metric{k}": ((i * 7919 + k) % 100_003) / 1e5 for k in range(5)},
                    "params": PARAMS,
                    "run": "bench",
                    "item": f"{i:06}",
                }
                for i in range(begin, min(begin + 5000, count))
            ]
        )
    megabytes = (folder / "registry.db").stat().st_size / 1e6
    scale = count / 100_000
    figures.add("registry: database of 100,000", megabytes / scale, 80, at_least=False, unit="MB")
    listing = best(lambda: list(r.list(limit=100)))
    figures.add("registry: list 100", listing, 2, at_least=False, unit="ms")
    ordered = best(lambda: list(r.list(order_by="metric3", limit=100)))
    figures.add("registry: best 100 by a metric", ordered, 2, at_least=False, unit="ms")
    columns = best(lambda: r._columns("", "", False), 3)
    figures.add("registry: all as columns", columns / scale, 500, at_least=False, unit="ms")
    where = best(lambda: r.count(where="metric1 < 0.5 and metric2 > 0.1"), 3)
    figures.add("registry: count by two metrics", where / scale, 500, at_least=False, unit="ms")
    binary = ROOT / "build/release/bin/headrace"
    words = [str(binary), "models", "list", "--registry", str(folder)]
    whole = best(lambda: subprocess.run(words, check=True, capture_output=True))
    figures.add("registry: whole `models list`", whole, 60, at_least=False, unit="ms")


def bundle_open(figures: Figures, work: pathlib.Path) -> None:
    folder = work / "bundle"
    r = registry.open(folder, push_to=())
    with r.bundle("bench", "deepar", {"w": (FLOATS,)}) as bundle:
        for i in range(4096):
            bundle.add(f"m/{i}", str(i), weights(i))
    path = r.artifact_path("m/7", "model.safetensors")
    one = best(lambda: registry.open_file(path).item("2048").weights["w"][3])
    figures.add("registry: open a bundle and one item", one, 5, at_least=False, unit="ms")
    empty = work / "empty"
    registry.open(empty, push_to=())
    size = sum(p.stat().st_size for p in empty.rglob("*") if p.is_file() and "shm" not in p.name)
    figures.add("registry: empty", size / 1000, 200, at_least=False, unit="KB")
    start = time.process_time()
    r.verify(deep=True)
    ours = time.process_time() - start
    usage = os.times()
    subprocess.run(["b2sum", "-l", "256", path], check=True, capture_output=True)
    theirs = os.times().children_user + os.times().children_system
    theirs -= usage.children_user + usage.children_system
    figures.add("registry: deep verify against b2sum", theirs / ours, 0.7, unit="x of CPU")


def main() -> int:
    """Measure what was asked for."""
    parser = argument_parser(__doc__)
    parser.add_argument("--mlflow-python", default=str(ROOT / ".venv-mlflow/bin/python"))
    parser.add_argument("--ours", type=int, default=10_000, help="models of ours per turn")
    parser.add_argument("--theirs", type=int, default=200, help="models of theirs per turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--large", action="store_true", help="also 100,000 models")
    options = parser.parse_args()
    if options.quick:
        options.ours, options.theirs, options.turns = 500, 10, 1
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        work = pathlib.Path(folder)
        if pathlib.Path(options.mlflow_python).exists():
            side_by_side(figures, options, work)
        else:
            print(f"{options.mlflow_python} is not there; `make test` makes it: MLflow left out")
        many_writers(figures, options, work)
        bundle_open(figures, work)
        large(figures, work, 100_000 if options.large else 5_000)
    return figures.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
