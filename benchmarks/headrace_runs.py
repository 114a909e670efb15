# SPDX-License-Identifier: Apache-2.0
"""Run headrace on M4 Hourly for a benchmark: pipelines made here, forecasts read from the run."""

import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from m4_hourly import EXAMPLE, HORIZON, LAKE
from side_by_side import Usage, headrace_command, run_child

# GluonTS's behaviour and budget: no validation tail, all lags, 500 steps of 32 windows.
PARITY = {"parity": True, "horizon": HORIZON, "context": HORIZON, "epochs": 10}


def write_lake(items: Sequence[str], path: pathlib.Path) -> None:
    """The training part of some items as one file, as the example lake has it."""
    table = pq.read_table(LAKE)
    kept = table.filter(pc.is_in(table["item_id"], value_set=pa.array(items)))
    pq.write_table(kept, path)


def write_earlier(cut: int, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """The lake without the last `cut` hours of each item, and the horizon that follows then."""
    table = pq.read_table(LAKE).sort_by([("item_id", "ascending"), ("timestamp", "ascending")])
    ids = np.array(table["item_id"].to_pylist(), dtype=object)
    ends = np.append(np.flatnonzero(ids[1:] != ids[:-1]) + 1, len(ids))
    left = np.repeat(ends, np.diff(ends, prepend=0)) - np.arange(len(ids))  # rows to the item's end
    parts = {
        "table": table.filter(pa.array(left > cut)),
        "actuals": table.filter(pa.array((left <= cut) & (left > cut - HORIZON))),
    }
    for name, part in parts.items():
        pq.write_table(part, folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in parts}


def local_pipeline(items: Sequence[str], lake: pathlib.Path, train: Mapping, slots: int) -> dict:
    """A local model per item, taken as it is, then forecasts for all of them."""
    common = {"table": str(lake)}
    each = {
        "name": "Train",
        "type": "HeadraceForecast",
        "typeProperties": {
            **common,
            "operation": "train",
            "scope": "local",
            "item": "@item()",
            "model": "benchmark",
            "choose": False,
            "train": dict(train),
        },
    }
    activities = [
        {
            "name": "TrainEach",
            "type": "ForEach",
            "typeProperties": {"items": list(items), "batchCount": slots, "activities": [each]},
        },
        {
            "name": "Evaluate",
            "type": "HeadraceForecast",
            "dependsOn": [{"activity": "TrainEach", "dependencyConditions": ["Succeeded"]}],
            "typeProperties": {
                **common,
                "operation": "evaluate",
                "actuals": str(EXAMPLE / "test.parquet"),
            },
        },
    ]
    return {"name": "benchmark", "properties": {"activities": activities}}


def start_pipeline(items: Sequence[str], warm: bool) -> dict:
    """The example with these items, each taken as its local model says: warm, or from nothing."""
    pipeline = json.loads((EXAMPLE / "pipeline.json").read_text())
    properties = pipeline["properties"]
    properties["parameters"]["table"]["defaultValue"] = str(LAKE)
    properties["parameters"]["actuals"]["defaultValue"] = str(EXAMPLE / "test.parquet")
    by_name = {activity["name"]: activity for activity in properties["activities"]}
    each = by_name["TrainEach"]["typeProperties"]
    each["items"] = list(items)
    train = each["activities"][0]["typeProperties"]
    train["choose"] = False
    if not warm:
        del train["warm_start"]
        train["train"] = {name: train["train"][name] for name in ("horizon", "seed")}
        by_name["TrainEach"]["dependsOn"] = []
        properties["activities"] = [
            activity
            for activity in properties["activities"]
            if activity["name"] not in ("Items", "TrainGlobal")
        ]
    else:
        by_name["TrainEach"]["dependsOn"] = by_name["TrainEach"]["dependsOn"][1:]
        properties["activities"].remove(by_name["Items"])
    return pipeline


def run_pipeline(
    pipeline: pathlib.Path, folder: pathlib.Path, parameters: Mapping[str, object]
) -> Usage:
    """`headrace flow run` with run and registry in `folder`; CPU time of all its processes."""
    words = [headrace_command(), "flow", "run", str(pipeline), "--dir", str(folder / "run")]
    for name, value in parameters.items():
        words += ["-p", f"{name}={value}"]
    return run_child(words, environment={"HEADRACE_REGISTRY": str(folder / "registry")})


def run_local(
    items: Sequence[str], train: Mapping, folder: pathlib.Path, slots: int = 1
) -> tuple[Usage, dict[str, dict[float, np.ndarray]]]:
    """Train these items; usage, and quantiles by item and level."""
    folder.mkdir(parents=True, exist_ok=True)
    lake = folder / "lake.parquet"
    write_lake(items, lake)
    path = folder / "pipeline.json"
    path.write_text(json.dumps(local_pipeline(items, lake, train, slots), indent=1))
    usage = run_pipeline(path, folder, {})
    return usage, read_quantiles(folder)


def read_quantiles(folder: pathlib.Path) -> dict[str, dict[float, np.ndarray]]:
    """Quantiles of the run in `folder`, by item and level."""
    table = pq.read_table(folder / "run" / "forecasts.parquet").sort_by(
        [("item_id", "ascending"), ("step", "ascending")]
    )
    names = [name for name in table.column_names if name.startswith("q0")]
    ids = np.array(table["item_id"].to_pylist(), dtype=object)
    columns = {float(name[1:]): table[name].to_numpy() for name in names}
    return {
        item: {level: values[ids == item] for level, values in columns.items()}
        for item in sorted(set(ids))
    }
