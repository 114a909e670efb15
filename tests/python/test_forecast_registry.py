# SPDX-License-Identifier: Apache-2.0
"""headrace.forecast and headrace.registry take each other's models."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pandas
import pyarrow as pa
import pytest

import headrace
import small_lake
from conftest import Run
from headrace import forecast, registry


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake.good_lake(tmp_path)


def test_a_trained_model_goes_into_a_registry_and_forecasts_from_there(
    lake: Path, tmp_path: Path, run_headrace
) -> None:
    model = forecast.train(lake, scope="global", **small_lake.TRAIN)
    r = registry.open(tmp_path / "registry")
    version = r.add("all", model, metrics={"mase": 1.0})
    assert version.kind == "deepar"

    expected = pa.table(forecast.predict(model, lake))
    stored = r.load("all")
    assert pa.table(forecast.predict(stored, lake)) == expected
    done = run_headrace("forecast", "predict", lake, "--model", "all", "--out", tmp_path / "f.csv")
    assert done.returncode == 0, done.stderr
    assert len(pandas.read_csv(tmp_path / "f.csv")) == len(expected)

    again = r.add("copy", stored)  # with its header
    assert pa.table(forecast.predict(r.load(again.reference), lake)) == expected
    warm = forecast.train(lake, warm_start=stored, **small_lake.TRAIN)
    assert set(warm) == set(small_lake.ITEMS)


def test_models_of_items_may_come_from_a_registry(lake: Path, tmp_path: Path) -> None:
    frame = small_lake.table(small_lake.columns(["a", "b"])).to_pandas()
    short = frame[frame["item_id"] == "a"].head(5).assign(item_id="short")  # a naive method's
    frame = pandas.concat([frame, short])
    models = forecast.train(frame, **small_lake.TRAIN)
    assert models["short"].method != "deepar"
    r = registry.open(tmp_path / "registry")
    for item, model in models.items():
        r.add(f"m/{item}", model, item=item)
    stored = {item: r.load(f"m/{item}") for item in models}
    expected = pa.table(forecast.predict(models, frame))
    assert pa.table(forecast.predict(stored, frame)) == expected

    with pytest.raises(TypeError, match=r"forecast.Model.*registry.Model.*not str"):
        forecast.predict("m/a", frame)
    r.add("weights", {"w": np.ones(3, "f4")})
    with pytest.raises(headrace.Corrupt, match="kind"):
        forecast.predict(r.load("weights"), frame)


def test_objects_say_what_they_are(lake: Path, tmp_path: Path) -> None:
    models = forecast.train(lake, **small_lake.TRAIN)
    alike = forecast.train(lake, scope="global", **small_lake.TRAIN)
    assert repr(alike) == (
        "<headrace.forecast.Model deepar, frequency h, horizon 12, members 1, "
        "columns item_id timestamp target>"
    )
    assert repr(models) == (
        "<headrace.forecast.Models of 3 items (s0, s1, s2), frequency h, horizon 12, 0 failed>"
    )
    made = forecast.predict(models, lake)
    assert repr(made) == (
        "<headrace.forecast.Forecasts of 3 items, frequency h, horizon 12, 36 rows, 0 failed; "
        "to_pandas() gives a frame>"
    )
    frame = made.to_pandas()
    pandas.testing.assert_frame_equal(frame, pa.table(made).to_pandas())
    assert list(frame.columns[:3]) == ["item_id", "timestamp", "step"]

    r = registry.open(tmp_path / "registry")
    assert repr(r) == f"<headrace.registry.Registry {tmp_path / 'registry'}>"
    version = r.add("all", alike, metrics={"mase": 1.0})
    r.alias("all", "champion")
    expected = "<headrace.registry.Version all:1, kind deepar, metrics mase>"
    assert repr(version) == expected
    assert repr(r.get("all")) == expected.replace(", m", ", aliases champion, m")
    model = r.load("all@champion")
    tensors = len(model.weights)
    assert repr(model) == f"<headrace.registry.Model all:1, kind deepar, {tensors} tensors>"


@pytest.mark.parametrize("scope", ["--local", "--global"])
def test_a_trained_model_knows_its_run_its_data_and_its_makers(
    scope: str, tmp_path: Path, run_headrace: Run
) -> None:
    days = np.datetime64("2026-01-01") + np.arange(80)
    rows = "".join(f"a,{day},{i % 7 + 1}\n" for i, day in enumerate(days))
    (tmp_path / "t.csv").write_text("item_id,timestamp,target\n" + rows)
    small = ["--hidden", "8", "--context", "7", "--epochs", "1", "--batches-per-epoch", "2"]
    words = ["forecast", "train", "t.csv", scope, "--horizon", "7", "--model", "m", *small]
    if scope == "--local":
        words += ["--global-members", "0", "--dir", "runs"]
    done = run_headrace(*words)
    assert done.returncode == 0, done.stderr
    r = registry.open(tmp_path / "registry")
    [version] = r.list("m")
    lineage = r.get(version.reference).lineage
    assert lineage["run_status"] == "Succeeded"
    assert lineage["run_started"] < lineage["run_ended"]
    assert re.fullmatch("[0-9a-f]{32}", lineage["data_hash"])
    assert lineage["environment"]["headrace"] == headrace.__version__
    assert set(lineage["environment"]) == {"headrace", "arrow", "os", "machine", "cpu"}
    if version.artifacts:
        assert r.load("m/a" if scope == "--local" else "m").header["library"] == (
            f"headrace {headrace.__version__}"
        )
    if scope == "--local":
        [document] = (tmp_path / "runs").glob("m-*.json")
        digest = hashlib.blake2b(document.read_bytes(), digest_size=32).hexdigest()
        assert lineage["pipeline_digest"] == digest
