# SPDX-License-Identifier: Apache-2.0
"""What `headrace forecast train` takes for each item, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

import small_lake


class Trained:
    """One `forecast train` on a lake, in a folder of its own."""

    def __init__(self, run_headrace, lake: Path, folder: Path, *words: str | Path) -> None:
        self.folder = folder
        self.done = run_headrace(
            "forecast", "train", lake, "--model", "m", *small_lake.FAST, *words, "--dir", folder
        )
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        self.summary: dict[str, Any] = json.loads((folder / "evaluation.json").read_text())[
            "summary"
        ]
        self.forecasts = pandas.read_parquet(folder / "forecasts.parquet")


@pytest.mark.parametrize(
    "words",
    [["--parity"], ["--parity", "--global-members", "0"], ["--validation-windows", "0"]],
    ids=" ".join,
)
def test_a_training_that_holds_nothing_back_gives_the_local_models(
    words: list[str], run_headrace, tmp_path: Path
) -> None:
    trained = Trained(run_headrace, small_lake.good_lake(tmp_path), tmp_path / "run", *words)

    assert trained.summary["winners"] == {"local": len(small_lake.ITEMS)}
    assert set(trained.forecasts["model"]) == {"deepar"}
    assert len(trained.forecasts) == len(small_lake.ITEMS) * small_lake.HORIZON


def test_a_refit_comes_after_the_choice(run_headrace, tmp_path: Path) -> None:
    lake = small_lake.good_lake(tmp_path)
    judged = Trained(run_headrace, lake, tmp_path / "a")
    again = Trained(run_headrace, lake, tmp_path / "b", "--refit", "full")

    assert again.summary["winners"] == judged.summary["winners"]
    assert again.summary["as_chosen"] == judged.summary["as_chosen"]
