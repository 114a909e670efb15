# SPDX-License-Identifier: Apache-2.0
"""What MLflow loads of pushed models: the folder, and forecasts out of it. Needs no MLflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import Run
from headrace import IoError, Timeout, _cli, _mlflow_model, mlflow, registry


@pytest.fixture
def sales(tmp_path: Path) -> pd.DataFrame:
    """Two daily series of 80 values in a CSV file, with the columns that the pushed model takes."""
    days = pd.date_range("2026-01-01", periods=80)
    wave = 50 + 10 * np.sin(np.arange(80) * 2 * np.pi / 7)
    frames = [
        pd.DataFrame({"item": item, "timestamp": days, "target": level * wave})
        for item, level in (("north", 1.0), ("south", 3.0))
    ]
    frame = pd.concat(frames, ignore_index=True)
    frame.to_csv(tmp_path / "sales.csv", index=False)
    return frame


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        ("#!/bin/sh\nexec sleep 60\n", Timeout, "did not end within 0.5 s"),
        (None, IoError, "cannot be started"),
    ],
)
def test_a_forecast_of_a_pushed_model_has_a_limit(
    script: str | None,
    error: type[Exception],
    text: str,
    tmp_path: Path,
    sales: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    r = registry.open(tmp_path / "registry")
    version = r.add("m", {"w": np.zeros(3, "f4")})
    folder = tmp_path / "pushed"
    folder.mkdir()
    _mlflow_model.write_folder(folder, r, "m", [version], "0" * 32, "3.17.2")
    program = tmp_path / "program"
    if script is not None:
        program.write_text(script)
        program.chmod(0o755)
    monkeypatch.setattr(_cli, "binary", lambda: program)
    monkeypatch.setattr(_mlflow_model, "PREDICT_SECONDS", 0.5)
    with pytest.raises(error, match=text):
        mlflow._load_pyfunc(str(folder / "data")).predict(sales)


def test_a_pushed_run_forecasts_as_the_command_line_does(
    sales: pd.DataFrame, tmp_path: Path, run_headrace: Run
) -> None:
    small = ["--hidden", "8", "--context", "7", "--epochs", "1", "--batches-per-epoch", "2"]
    done = run_headrace(
        *("forecast", "train", "sales.csv", "--id", "item", "--horizon", "7", "--model", "sales"),
        *("--global-members", "1", *small),
    )
    assert done.returncode == 0, done.stderr
    r = registry.open(tmp_path / "registry")
    versions = list(r.list("sales/*"))
    assert len(versions) == 2
    folder = tmp_path / "pushed"
    folder.mkdir()
    _mlflow_model.write_folder(folder, r, "sales", versions, "0" * 32, "3.17.2")

    model = mlflow._load_pyfunc(str(folder / "data"))
    out = model.predict(sales, {"horizon": 5, "seed": 3, "quantiles": [0.1, 0.5]})

    assert list(out.columns) == ["item", "timestamp", "mean", "0.1", "0.5"]
    assert list(out["item"]) == ["north"] * 5 + ["south"] * 5
    assert out["timestamp"][0] == pd.Timestamp("2026-03-22")
    done = run_headrace(
        *("forecast", "predict", "sales.csv", "--id", "item", "--model", "sales"),
        *("--horizon", "5", "--seed", "3", "--quantiles", "0.1,0.5", "--out", "f.csv"),
    )
    assert done.returncode == 0, done.stderr
    direct = pd.read_csv(tmp_path / "f.csv")
    np.testing.assert_allclose(out["0.5"], direct["q0.5"], rtol=1e-9)
    np.testing.assert_allclose(out["mean"], direct["mean"], rtol=1e-9)
