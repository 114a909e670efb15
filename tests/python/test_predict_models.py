# SPDX-License-Identifier: Apache-2.0
"""Which models `forecast predict` takes for which items."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

import small_lake


def _ok(done) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def lake(tmp_path: Path, run_headrace) -> Path:
    """A lake with a model `m/ITEM` for each item."""
    lake = small_lake.good_lake(tmp_path)
    words = ["forecast", "train", lake, *small_lake.FAST, "--global-members", "0", "--model", "m"]
    _ok(run_headrace(*words, "--dir", tmp_path / "runs"))
    return lake


def test_training_says_what_was_settled_and_what_was_chosen(
    lake: Path, tmp_path: Path, run_headrace
) -> None:
    words = ["forecast", "train", lake, *small_lake.FAST, "--model", "n", "--season", "12"]
    told = _ok(run_headrace(*words, "--global-members", "1", "--dir", tmp_path / "n"))
    assert "frequency h, season 12, horizon 12\n" in told
    assert "means over the 3 of 3 items" in told
    assert "\nas chosen                       3       3 " in told
    assert "\nchosen: " in told
    assert "frequency h, season 12, horizon 12, 3 series\n" in _ok(run_headrace(*words, "--global"))


def test_an_alias_of_a_set_of_models_names_them_all(
    lake: Path, tmp_path: Path, run_headrace
) -> None:
    out = tmp_path / "f.csv"

    def predict(model: str):
        return run_headrace("forecast", "predict", lake, "--model", model, "--out", out)

    done = predict("m@champion")
    assert done.returncode == 2
    assert 'nor is there a model below "m/" with the alias champion' in done.stderr

    _ok(run_headrace("models", "alias", "m/*", "champion"))
    for model in ("m@champion", "m/*@champion", "m/*", "m@latest", "m"):
        _ok(predict(model))
        assert set(pandas.read_csv(out)["item_id"]) == set(small_lake.ITEMS)

    _ok(run_headrace("models", "alias", "m/s1", "champion", "--remove"))
    done = predict("m/*@champion")
    assert done.returncode == 1
    assert "failed: s1: " in done.stderr
    assert "champion" in done.stderr
    assert set(pandas.read_csv(out)["item_id"]) == {"s0", "s2"}


def test_a_model_of_one_item_forecasts_that_one(lake: Path, tmp_path: Path, run_headrace) -> None:
    out = tmp_path / "f.csv"

    def items(*more: str | Path) -> tuple[str, list[str]]:
        words = ["forecast", "predict", "--model", "m/s1", "--out", out, *more]
        told = _ok(run_headrace(*words))
        return told, list(pandas.read_csv(out)["item_id"].unique())

    told, made = items(lake)
    assert made == ["s1"]
    assert 'm/s1:1 was trained on item "s1" alone and forecasts that one; --all-items' in told
    assert items(lake, "--all-items")[1] == small_lake.ITEMS
    told, made = items(lake, "--item", "s2")
    assert (made, "alone" in told) == (["s2"], False)

    other = small_lake.write(tmp_path / "other" / "p.parquet", small_lake.table().slice(0, 150))
    done = run_headrace("forecast", "predict", other, "--model", "m/s1", "--out", out)
    assert done.returncode == 2
    assert 'has no item "s1"' in done.stderr
    assert "--item ITEM or --all-items" in done.stderr
