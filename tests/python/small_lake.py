# SPDX-License-Identifier: Apache-2.0
"""A lake of a few short series, a pipeline over it and budgets of a test, for what goes wrong."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ITEMS = ["s0", "s1", "s2"]
HOURS = 150
HORIZON = 12
START = datetime.datetime(2026, 1, 1)
TRAIN = {
    "horizon": HORIZON,
    "epochs": 1,
    "batches_per_epoch": 2,
    "hidden": 4,
    "layers": 1,
    "context": 24,
}
FAST = [
    word for name, value in TRAIN.items() for word in (f"--{name.replace('_', '-')}", str(value))
]


def columns(items: list[str] = ITEMS, hours: int = HOURS) -> dict[str, list[Any]]:
    """Hourly rows as Python lists, to be spoilt; row `i * hours + k` is hour k of item i."""
    rows = [(item, k) for item in items for k in range(hours)]
    return {
        "item_id": [item for item, _ in rows],
        "timestamp": [START + datetime.timedelta(hours=k) for _, k in rows],
        "target": [10.0 + 3 * math.sin(math.tau * k / 24) + 0.1 * (7 * k % 5) for _, k in rows],
    }


def table(data: dict[str, list[Any]] | None = None, zone: str | None = None) -> pa.Table:
    """As it should be, unless `data` is not."""
    data = data or columns()
    stamp = pa.array(data["timestamp"], pa.timestamp("us", tz=zone))
    target = pa.array(data["target"], pa.float64())
    return pa.table({"item_id": data["item_id"], "timestamp": stamp, "target": target})


def write(path: Path, content: pa.Table | bytes, **options: Any) -> Path:
    """Write one file of a lake; answers the lake's folder."""
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path, **options)
    return path.parent


def good_lake(folder: Path) -> Path:
    return write(folder / "lake" / "part-0.parquet", table())


def pipeline(
    path: Path, lake: Path, train: dict[str, Any] | None = None, **properties: Any
) -> Path:
    """Items, a model for each, an evaluation; `properties` go to the training activity."""
    each = {
        "name": "Train",
        "type": "HeadraceForecast",
        "typeProperties": {
            "operation": "train",
            "scope": "local",
            "table": str(lake),
            "item": "@item()",
            "model": "m",
            "train": TRAIN | (train or {}),
            **properties,
        },
    }
    activities = [
        {
            "name": "Items",
            "type": "HeadraceForecast",
            "typeProperties": {"operation": "items", "table": str(lake)},
        },
        {
            "name": "TrainEach",
            "type": "ForEach",
            "dependsOn": [{"activity": "Items", "dependencyConditions": ["Succeeded"]}],
            "typeProperties": {
                "items": "@activity('Items').output.items",
                "batchCount": 2,
                "activities": [each],
            },
        },
        {
            "name": "Evaluate",
            "type": "HeadraceForecast",
            "dependsOn": [{"activity": "TrainEach", "dependencyConditions": ["Completed"]}],
            "typeProperties": {"operation": "evaluate", "table": str(lake)},
        },
    ]
    path.write_text(json.dumps({"name": "p", "properties": {"activities": activities}}, indent=1))
    return path
