# SPDX-License-Identifier: Apache-2.0
"""Sets of models, NAME/*: what is deleted of them, how it comes back, how Python loads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import headrace
import small_lake
from headrace import forecast, registry


def fill(folder: Path) -> registry.Registry:
    r = registry.open(folder)
    for name in ("shops/a", "shops/b", "shops/b", "other"):
        r.add(name, {"w": np.ones(2, "f4")})
    return r


def test_a_listing_with_deleted_versions_says_which_they_are(tmp_path: Path, run_headrace) -> None:
    fill(tmp_path / "registry")
    delete = ["models", "delete", "shops/*", "--all-versions", "--yes"]
    assert run_headrace(*delete).returncode == 0
    for words in (["--deleted"], ["--deleted", "--all"]):
        shown = run_headrace("models", "list", *words)
        header, *rows = [line.split() for line in shown.stdout.splitlines()]
        assert "deleted" in header
        marks = {row[0]: " ".join(row).count("Z") for row in rows}  # created, and deleted
        assert marks == {"other": 1, "shops/a": 2, "shops/b": 2}, shown.stdout
    assert "deleted" not in run_headrace("models", "list").stdout.splitlines()[0]
    csv = run_headrace("models", "list", "--deleted", "--csv").stdout.splitlines()
    assert csv[0].split(",").count("deleted") == 1
    told = json.loads(run_headrace("models", "list", "--deleted", "--json").stdout)["versions"]
    assert {one["name"]: bool(one["deleted"]) for one in told} == {
        "other": False, "shops/a": True, "shops/b": True,
    }  # fmt: skip


def test_a_set_is_restored_as_it_is_deleted(tmp_path: Path, run_headrace) -> None:
    r = fill(tmp_path / "registry")
    before = sorted(version.reference for version in r.list())
    delete = ["models", "delete", "shops/*", "--all-versions", "--yes"]
    assert run_headrace(*delete).returncode == 0
    assert [version.reference for version in r.list()] == ["other:1"]

    done = run_headrace("models", "restore", "shops/*")

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["shops/a:1", "shops/b:1", "shops/b:2"]
    assert sorted(version.reference for version in r.list()) == before
    again = run_headrace("models", "restore", "shops/*")
    assert again.returncode == 2
    assert "deleted" in again.stderr and "%2A" not in again.stderr


def test_a_set_where_one_model_is_needed_says_what_to_do(tmp_path: Path, run_headrace) -> None:
    r = fill(tmp_path / "registry")
    for words in (["get", "shops/*", "--out", "x"], ["show", "shops/*"], ["history", "shops/**"]):
        done = run_headrace("models", *words)
        assert done.returncode == 2
        assert "%2A" not in done.stderr
        assert "shops/ITEM" in done.stderr and "headrace models list" in done.stderr, done.stderr
    with pytest.raises(headrace.InvalidArgument, match="load_set"):
        r.load("shops/*")


def test_a_set_of_models_is_loaded_by_item_and_forecasts(
    tmp_path: Path, run_headrace, headrace_json
) -> None:
    data = small_lake.columns(["a b", "c/d", "e%"])
    lake = small_lake.write(tmp_path / "lake" / "part-0.parquet", small_lake.table(data))
    train = ["forecast", "train", lake, *small_lake.FAST, "--global-members", 0, "--model", "m"]
    assert run_headrace(*train).returncode == 0
    r = registry.open(tmp_path / "registry")

    models = r.load_set("m")

    assert sorted(models) == ["a b", "c/d", "e%"]
    assert sorted(r.load_set("m/*")) == sorted(models)
    made = forecast.predict(models, lake)
    assert not made.errors
    headrace_json("forecast", "predict", lake, "--model", "m", "--out", "f.csv")
    expected = (tmp_path / "f.csv").read_text().splitlines()
    assert len(made) == len(expected) - 1

    run_headrace("models", "alias", "m/*", "champion")
    r.add("m/new", {"w": np.ones(2, "f4")}, item="new")
    assert sorted(r.load_set("m@champion")) == sorted(models)
    assert "new" in r.load_set("m")
    with pytest.raises(headrace.NotFound, match="nothing"):
        r.load_set("nothing")
    with pytest.raises(headrace.NotFound, match="best"):
        r.load_set("m@best")
