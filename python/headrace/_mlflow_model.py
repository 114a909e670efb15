# SPDX-License-Identifier: Apache-2.0
"""The folder that MLflow keeps of a model, and forecasts out of it.

A folder holds `MLmodel` (which names `headrace.mlflow` as its loader) and `data/` with an export of
the versions (`models.tar`); for a single version also its files under their names; `items.json`
lists the items of a run with their metrics as MLflow's tables do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import _cli, registry
from headrace._errors import Error, InvalidArgument, IoError, Timeout
from headrace._version import __version__

if TYPE_CHECKING:
    import pandas

QUANTILES = (0.1, 0.5, 0.9)
# One call of predict; servers of MLflow give up on a request long before.
PREDICT_SECONDS = 600.0


def write_folder(
    folder: Path,
    r: registry.Registry,
    name: str,
    versions: Sequence[registry.Version],
    run_id: str,
    mlflow_version: str,
) -> None:
    """Write everything that MLflow needs to load the versions."""
    data = folder / "data"
    data.mkdir()
    single = versions[0] if len(versions) == 1 and versions[0].name == name else None
    if single is None:
        r.export_file(data / "models.tar", f"{name}/*", run=versions[0].lineage["run"])
        _write_items(folder / "items.json", versions)
    else:
        r.export_uid(data / "models.tar", single)
        r.get_files(f"uid:{single.uid}", data / "files")
    (data / "model.json").write_text(json.dumps({"model": name, "single": single is not None}))
    horizon = (versions[0].header or {}).get("horizon")
    _write_yaml(folder / "MLmodel", _mlmodel(versions[0].kind, horizon, run_id, mlflow_version))
    python = ".".join(map(str, sys.version_info[:3]))
    _write_yaml(
        folder / "python_env.yaml",
        {"python": python, "dependencies": ["-r requirements.txt"]},
    )
    (folder / "requirements.txt").write_text(f"headrace=={__version__}\npandas\n")
    example = {
        "columns": ["item", "timestamp", "target"],
        "data": [[versions[0].lineage["item"] or "a", "2020-01-01T00:00:00", 1.0]],
    }
    (folder / "input_example.json").write_text(json.dumps(example))


def _mlmodel(kind: str, horizon: int | None, run_id: str, mlflow_version: str) -> dict[str, Any]:
    def column(name: str, type_name: str, required: bool = True) -> dict[str, Any]:
        return {"name": name, "type": type_name, "required": required}

    inputs = [
        column("item", "string"),
        column("timestamp", "datetime"),
        column("target", "double", False),
    ]
    outputs = [
        column("item", "string"),
        column("timestamp", "datetime"),
        column("mean", "double"),
        *(column(str(q), "double") for q in QUANTILES),
    ]
    params = [
        {"name": "horizon", "type": "long", "default": horizon or 0, "shape": None},
        {"name": "num_samples", "type": "long", "default": 0, "shape": None},
        {"name": "seed", "type": "long", "default": 0, "shape": None},
        {"name": "quantiles", "type": "double", "default": list(QUANTILES), "shape": [-1]},
    ]
    return {
        "artifact_path": "model",
        "flavors": {
            "headrace": {"format": "export/1", "kind": kind, "headrace_version": __version__},
            "python_function": {
                "loader_module": "headrace.mlflow",
                "data": "data",
                "python_version": ".".join(map(str, sys.version_info[:3])),
                "env": {"virtualenv": "python_env.yaml"},
            },
        },
        "mlflow_version": mlflow_version,
        "model_uuid": uuid.uuid4().hex,
        "run_id": run_id,
        "saved_input_example_info": {
            "artifact_path": "input_example.json",
            "pandas_orient": "split",
            "type": "dataframe",
        },
        "signature": {
            "inputs": json.dumps(inputs),
            "outputs": json.dumps(outputs),
            "params": json.dumps(params),
        },
        "utc_time_created": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f"),
    }


def _write_items(path: Path, versions: Sequence[registry.Version]) -> None:
    names = sorted({name for version in versions for name in version.metrics})
    rows = [
        [v.lineage["item"], v.reference, *(_plain(v.metrics.get(name)) for name in names)]
        for v in versions
    ]
    path.write_text(json.dumps({"columns": ["item", "version", *names], "data": rows}))


def _plain(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities."""
    return value if value is None or abs(value) < float("inf") else str(value)


def _write_yaml(path: Path, value: dict[str, Any]) -> None:
    path.write_text("\n".join(_yaml(value, 0)) + "\n")


def _yaml(value: Any, depth: int) -> list[str]:  # noqa: ANN401
    """Maps and lists as lines, everything else as JSON, which YAML contains."""
    indent = "  " * depth
    lines: list[str] = []
    for key, entry in value.items():
        if isinstance(entry, dict):
            lines += [f"{indent}{key}:", *_yaml(entry, depth + 1)]
        else:
            lines.append(f"{indent}{key}: {json.dumps(entry)}")
    return lines


class PushedModels:
    """The versions of a pushed folder, in a registry of their own that lives with this object."""

    def __init__(self, folder: Path) -> None:
        """Import `models.tar` of `folder`; its hashes are checked."""
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-mlflow-")
        self._registry = registry.open(Path(self._folder.name) / "registry", push_to=())
        self._registry.import_file(folder / "models.tar")
        self._model: str = json.loads((folder / "model.json").read_text())["model"]

    def predict(self, data: pandas.DataFrame, params: dict[str, Any]) -> pandas.DataFrame:
        """Forecast; see headrace.mlflow.ForecastModel.predict."""
        import pandas as pd

        if "item" not in data.columns or "timestamp" not in data.columns:
            raise InvalidArgument(
                "the frame needs the columns item, timestamp and target; it has "
                + ", ".join(map(str, data.columns))
            )
        with tempfile.TemporaryDirectory() as work:
            table = Path(work) / "table.csv"
            out = Path(work) / "forecast.csv"
            columns = [c for c in ("item", "timestamp", "target") if c in data.columns]
            data[columns].to_csv(table, index=False, date_format="%Y-%m-%dT%H:%M:%S")
            self._run(table, out, params)
            frame = pd.read_csv(out, dtype={"item_id": str})
        frame = frame.drop(columns=["step", "model"]).rename(
            columns=lambda name: "item" if name == "item_id" else name.removeprefix("q")
        )
        frame["timestamp"] = pd.to_datetime(frame["timestamp"])
        return frame

    def _run(self, table: Path, out: Path, params: dict[str, Any]) -> None:
        words = [str(_cli.binary()), "forecast", "predict", str(table)]
        words += ["--model", self._model, "--registry", str(self._registry.folder)]
        words += ["--id", "item", "--out", str(out)]
        for name, flag in (("horizon", "--horizon"), ("num_samples", "--samples")):
            if params.get(name):
                words += [flag, str(int(params[name]))]
        if params.get("seed") is not None:
            words += ["--seed", str(int(params["seed"]))]
        if params.get("quantiles") is not None:
            words += ["--quantiles", ",".join(str(float(q)) for q in params["quantiles"])]
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                env={**os.environ},
                stdin=subprocess.DEVNULL,
                timeout=PREDICT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Timeout(
                f"headrace forecast predict did not end within {PREDICT_SECONDS} s; "
                "ask for fewer items at a time, or a smaller num_samples"
            ) from None
        except OSError as error:
            raise IoError(
                f"{words[0]} cannot be started: {error.strerror}; install headrace again"
            ) from error
        if done.returncode != 0:
            raise Error(done.stderr.strip() or f"headrace forecast predict: {done.returncode}")
