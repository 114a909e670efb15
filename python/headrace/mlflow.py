# SPDX-License-Identifier: Apache-2.0
"""Hand registered models over to MLflow, and serve them there.

`headrace models push` runs `python -m headrace.mlflow push`. The registry stays the source of
truth: MLflow is a mirror that training never waits for. What is pushed loads with
`mlflow.pyfunc.load_model` where headrace is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

__all__ = ["ForecastModel", "main"]


class ForecastModel:
    """What `mlflow.pyfunc.load_model` wraps: forecasts with the models of a pushed folder."""

    def __init__(self, folder: Path) -> None:
        """Open the folder that holds what was pushed (`data` in MLmodel)."""
        from headrace import _mlflow_model

        self._models = _mlflow_model.PushedModels(folder)

    def predict(
        self, data: pandas.DataFrame, params: dict[str, Any] | None = None
    ) -> pandas.DataFrame:
        """Forecast each item of `data` (columns item, timestamp, target).

        Returns one row per item and step: item, timestamp, mean, and a column per quantile.
        `params`: horizon, num_samples, seed, quantiles.
        """
        return self._models.predict(data, params or {})


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> ForecastModel:
    """Entry point that MLflow calls by name; `path` is `data` of MLmodel."""
    del model_config
    return ForecastModel(Path(path))


def main(arguments: list[str]) -> int:
    """Run `push` with the options of `headrace models push`; returns the exit code."""
    from headrace import _mlflow_push

    return _mlflow_push.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
