# SPDX-License-Identifier: Apache-2.0
"""Data sets that GluonTS wrote, named by their folder: frequency and horizon from the metadata."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pandas
import pyarrow as pa
import pytest

import headrace
from headrace import forecast, registry

ROOT = Path(__file__).resolve().parents[2]
HORIZON = 6
QUICK = {"epochs": 1, "batches_per_epoch": 2, "hidden": 4, "layers": 1, "context": 12}
WORDS = [w for n, v in QUICK.items() for w in (f"--{n.replace('_', '-')}", str(v))]

# GluonTS's name of the frequency: ours, and the first step after 60 of them from the period that
# holds 2015-07-01 (pandas 2.3: (pd.Period("2015-07-01", freq) + 60).start_time).
FIRST_STEPS = {
    "h": ("h", "2015-07-03 12:00"),
    "30min": ("30min", "2015-07-02 06:00"),
    "D": ("D", "2015-08-30"),
    "B": ("B", "2015-09-23"),
    "W": ("W", "2016-08-22"),
    "W-WED": ("W-WED", "2016-08-18"),
    "M": ("ME", "2020-07-01"),
    "Q": ("QE", "2030-07-01"),
    "Q-JAN": ("QE-JAN", "2030-05-01"),
    "Y": ("YE", "2075-01-01"),
}


@pytest.fixture(scope="module")
def data_sets(reference_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gluonts")
    worker = ROOT / "tests/python/gluonts_dataset_worker.py"
    words = [str(reference_python), str(worker), str(folder), *FIRST_STEPS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("freq", FIRST_STEPS)
def test_frequency_and_horizon_are_the_metadatas(data_sets: Path, freq: str) -> None:
    name, first = FIRST_STEPS[freq]
    model = forecast.train(data_sets / freq, scope="global", **QUICK)
    assert model.header["frequency"] == name
    assert model.header["horizon"] == HORIZON
    made = pa.table(forecast.predict(model, data_sets / freq)).to_pandas()
    assert made.groupby("item_id").timestamp.min().tolist() == [pandas.Timestamp(first)] * 2
    assert len(made) == 2 * HORIZON


def test_training_evaluation_and_backtest_take_the_folder(
    data_sets: Path, tmp_path: Path, run_headrace, headrace_json
) -> None:
    root = data_sets / "h"
    # All of it, as a pipeline with what came: the test/ of the data set.
    words = ["forecast", "train", root, "--model", "m", *WORDS, "--global-members", "0"]
    done = run_headrace(*words, "--actuals", root)
    assert done.returncode == 0, done.stdout + done.stderr
    r = registry.open(tmp_path / "registry")
    for version in r.list("m/*"):
        assert version.lineage["table"]["url"] == str(root / "train")
    [evaluation] = (tmp_path / "runs").glob("*/evaluation.json")
    assert pandas.read_csv(evaluation.parent / "forecasts.csv").step.max() == HORIZON
    summary = json.loads(evaluation.read_text())["summary"]
    assert (summary["items"], summary["judged_on"]) == (2, "actuals")

    told = headrace_json("forecast", "backtest", root, *WORDS, "--global")
    assert len(told["naive2"]["per_step"]) == HORIZON
    told = headrace_json("forecast", "backtest", root, *WORDS, "--global", "--horizon", "3")
    assert len(told["naive2"]["per_step"]) == 3  # a flag says otherwise

    out = tmp_path / "f.csv"
    assert run_headrace("forecast", "predict", root, "--model", "m", "--out", out).returncode == 0
    told = headrace_json("forecast", "evaluate", out, "--history", root, "--actuals", root)
    assert told["items"] == 2
    assert len(told["naive2"]["per_step"]) == HORIZON


def test_actual_values_are_those_of_test_and_never_of_train(
    data_sets: Path, tmp_path: Path, run_headrace, headrace_json
) -> None:
    root = shutil.copytree(data_sets / "h", tmp_path / "h")
    model = forecast.train(root, scope="global", **QUICK)
    made = forecast.predict(model, root)
    whole = forecast.evaluate(made, root, root)
    assert whole.totals == forecast.evaluate(made, root, root / "test").totals
    assert not whole.errors
    shutil.rmtree(root / "test")
    message = f"{root} has no test/; name the table of actuals"
    with pytest.raises(headrace.InvalidArgument, match=message):
        forecast.evaluate(made, root, root)
    with pytest.raises(headrace.InvalidArgument, match=message):
        forecast.evaluate(made, root, forecast.Table(root))
    done = run_headrace("forecast", "train", root, *WORDS, "--actuals", root)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_metadata_file_elsewhere_is_named(data_sets: Path, tmp_path: Path, headrace_json) -> None:
    lines = shutil.copytree(data_sets / "D/train", tmp_path / "lines")
    words = ["forecast", "backtest", lines, *WORDS, "--global"]
    by_file = headrace_json(*words, "--metadata", data_sets / "D/metadata.json")
    assert by_file == headrace_json("forecast", "backtest", data_sets / "D", *WORDS, "--global")
    assert by_file == headrace_json(*words, "--metadata", data_sets / "D")
    table = forecast.Table(lines, metadata=data_sets / "D/metadata.json")
    scores = forecast.backtest(table, scope="global", **QUICK)
    assert scores.totals["model"]["mase"] == pytest.approx(by_file["deepar"]["mase"])
    # Its frequency gives way to one that is told.
    told = headrace_json(*words, "--metadata", data_sets / "D", "--frequency", "h")
    assert told["deepar"] != by_file["deepar"]


def test_categories_must_be_below_their_cardinality(
    data_sets: Path, tmp_path: Path, run_headrace
) -> None:
    root = shutil.copytree(data_sets / "h", tmp_path / "h")
    metadata = json.loads((root / "metadata.json").read_text())
    metadata["feat_static_cat"][0]["cardinality"] = "1"
    (root / "metadata.json").write_text(json.dumps(metadata))
    words = ["forecast", "backtest", root, *WORDS, "--global"]
    done = run_headrace(*words, "--categories", "feat_static_cat_0")
    assert done.returncode == 2
    assert "data.json.gz:2" in done.stderr
    assert "value 0 is 1, but its cardinality is 1 by the metadata" in done.stderr


def test_bad_metadata_and_no_metadata_say_what_to_do(
    data_sets: Path, tmp_path: Path, run_headrace
) -> None:
    root = shutil.copytree(data_sets / "h", tmp_path / "h")
    (root / "metadata.json").write_text('{"freq": "fortnight"}')
    done = run_headrace("forecast", "train", root, "--horizon", "6")
    assert done.returncode == 2
    assert str(root / "metadata.json") in done.stderr
    assert 'unknown frequency "fortnight"' in done.stderr
    done = run_headrace("forecast", "train", root, "--metadata", tmp_path / "none.json")
    assert done.returncode == 2
    assert "none.json" in done.stderr
    (root / "metadata.json").unlink()
    done = run_headrace("forecast", "train", root / "train", "--horizon", "6")
    assert done.returncode == 2
    assert "say its frequency (h, D, MS, ...), or name the metadata file" in done.stderr
    with pytest.raises(headrace.InvalidArgument, match="no horizon is given"):
        forecast.train(forecast.Table(root / "train", frequency="h"), scope="global")
