# SPDX-License-Identifier: Apache-2.0
"""headrace.forecast: tables of several kinds in, Arrow out; models as parts and as ONNX."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace
import small_lake
from headrace import _native, forecast

QUICK = {
    "context": 8,
    "lags": [1, 2, 3, 24],
    "hidden": 8,
    "batch": 8,
    "epochs": 2,
    "batches_per_epoch": 4,
}


SMALL = (
    *("--horizon", "6", "--model", "m", "--hidden", "8", "--context", "8"),
    *("--epochs", "1", "--batches-per-epoch", "2"),
)


# What a forecast has that was told no quantiles.
LEVELS = [0.025, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.975]


def arrow(rows: object) -> pa.Table:
    return pa.RecordBatchReader.from_stream(rows).read_all()


def wave(items: dict[str, int], seed: int = 1) -> pd.DataFrame:
    """Daily waves, hourly, of the given lengths."""
    rng = np.random.default_rng(seed)
    frames = []
    for item, length in items.items():
        t = np.arange(length)
        y = 100 * (1 + 0.5 * np.sin(2 * np.pi * t / 24) + 0.05 * rng.standard_normal(length))
        stamps = pd.date_range("2015-07-01", periods=length, freq="h")
        frames.append(pd.DataFrame({"item_id": item, "timestamp": stamps, "target": y}))
    return pd.concat(frames, ignore_index=True)


def test_a_path_a_frame_and_an_arrow_table_give_the_same_forecasts(tmp_path: Path) -> None:
    frame = wave({"A": 120, "B": 100})
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    results = []
    for source in (tmp_path / "t.parquet", str(tmp_path / "t.csv"), table, frame):
        models = forecast.train(source, horizon=6, **QUICK)
        assert list(models) == ["A", "B"]
        assert models.errors == []
        results.append(arrow(forecast.predict(models, source, samples=20)))
    first = results[0]
    assert first.column_names == [
        "item_id", "timestamp", "step", "mean",
        *(f"q{level:g}" for level in LEVELS), "model",
    ]  # fmt: skip
    assert first.num_rows == 12
    assert first["step"].to_pylist() == [1, 2, 3, 4, 5, 6] * 2
    assert first["timestamp"][0].as_py() == pd.Timestamp("2015-07-06 00:00")
    assert set(first["model"].to_pylist()) == {"deepar"}
    for other in results[1:]:
        assert other["q0.5"].equals(first["q0.5"])
        assert (
            other["timestamp"]
            .cast(pa.timestamp("us"))
            .equals(first["timestamp"].cast(pa.timestamp("us")))
        )


def test_results_do_not_depend_on_threads_or_on_other_items() -> None:
    frame = wave({"A": 120, "B": 100, "C": 90})
    one = forecast.train(frame, horizon=6, threads=1, **QUICK)
    three = forecast.train(frame[frame.item_id != "B"], horizon=6, threads=3, **QUICK)
    for item in ("A", "C"):
        for name, tensor in one[item].tensors.items():
            assert np.array_equal(tensor, three[item].tensors[name])


def test_a_global_model_forecasts_items_it_has_not_seen_and_starts_local_ones() -> None:
    frame = wave({"A": 120, "B": 100})
    model = forecast.train(frame, horizon=6, scope="global", members=2, **QUICK)
    assert model.members == 2
    new = wave({"N": 50}, seed=9)
    rows = forecast.predict(model, new, samples=10, keep_samples=True, quantiles=[0.5])
    assert rows.samples["N"].shape == (10, 6)
    table = arrow(rows)
    assert table.column_names[4:5] == ["q0.5"]
    first = float(rows.samples["N"][:, 0].mean())
    assert table["mean"][0].as_py() == pytest.approx(first, rel=1e-6)

    local = forecast.train(frame, horizon=6, warm_start=model, epochs=1, batches_per_epoch=1,
                           hidden=8)  # fmt: skip
    assert local["A"].members == 2
    assert local["A"].header["lags"] == [1, 2, 3, 24]
    with pytest.raises(headrace.Error) as caught:
        forecast.train(frame[frame.item_id == "A"], horizon=6, scope="global", warm_start=model,
                       hidden=40)  # fmt: skip
    assert "hidden is 40 here and 8 there" in str(caught.value)


def test_a_bad_item_does_not_stop_the_others() -> None:
    frame = pd.concat([wave({"A": 60, "short": 4, "twice": 30}), wave({"twice": 1})])
    models = forecast.train(frame, horizon=6, **QUICK)
    assert list(models) == ["A", "short"]
    assert models["short"].method == "last_value"
    assert [failure.item for failure in models.errors] == ["twice"]
    assert models.errors[0].code == "invalid_argument"
    assert "2015-07-01 00:00:00" in models.errors[0].message
    forecasts = forecast.predict(models, frame, samples=5)
    assert len(forecasts) == 12
    assert [failure.item for failure in forecasts.errors] == ["twice"]


def test_errors_say_what_to_do() -> None:
    frame = wave({"A": 60})
    with pytest.raises(headrace.InvalidArgument, match='did you mean "learning_rate"'):
        forecast.train(frame, horizon=6, lerning_rate=0.1)
    with pytest.raises(headrace.InvalidArgument, match=r"epochs.*must be 1 to"):
        forecast.train(frame, horizon=6, epochs=0)
    with pytest.raises(headrace.NotFound, match="target"):
        forecast.train(frame.rename(columns={"target": "value"}), horizon=6)
    with pytest.raises(headrace.InvalidArgument, match="__arrow_c_stream__"):
        forecast.train([1, 2, 3], horizon=6)
    with pytest.raises(ValueError, match="no models"):
        forecast.predict({}, frame)


def test_names_of_columns_can_be_told_and_usual_ones_are_found() -> None:
    frame = wave({"A": 60})
    usual = frame.rename(columns={"item_id": "unique_id", "timestamp": "ds", "target": "y"})
    told = frame.rename(columns={"item_id": "shop", "timestamp": "when", "target": "sold"})
    a = forecast.train(usual, horizon=6, **QUICK)["A"]
    b = forecast.train(
        forecast.Table(told, id="shop", time="when", target="sold"), horizon=6, **QUICK
    )["A"]
    names = {"id": "shop", "time": "when", "target": "sold"}
    assert a.header | {"columns": names} == b.header
    assert a.header["columns"] == {"id": "unique_id", "time": "ds", "target": "y"}


def test_backtests_and_evaluation_stand_beside_naive_methods() -> None:
    frame = wave({"A": 120, "B": 110})
    scores = forecast.backtest(frame, horizon=6, windows=2, samples=20, **QUICK)
    assert set(scores.totals) == {"model", "seasonal_naive", "naive2"}
    assert scores.totals["naive2"]["owa"] == pytest.approx(1.0)
    assert arrow(scores.items).num_rows == 6
    assert arrow(scores.steps)["step"].to_pylist() == [1, 2, 3, 4, 5, 6]

    past = frame.groupby("item_id").head(104)
    models = forecast.train(past, horizon=6, **QUICK)
    judged = forecast.evaluate(forecast.predict(models, past, samples=20), past, frame)
    # Seasonal naive by pandas.
    errors, scales = [], []
    for _, one in frame.groupby("item_id"):
        y = one.target.to_numpy()
        errors.append(np.abs(y[104:110] - y[80:86]).mean())
        scales.append(np.abs(y[24:104] - y[:80]).mean())
    expected = float(np.mean(np.array(errors) / np.array(scales)))
    assert judged.totals["seasonal_naive"]["mase"] == pytest.approx(expected)


def test_progress_is_told_and_may_stop() -> None:
    frame = wave({"A": 200, "B": 200})
    told: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        told.append((done, total))
        raise KeyboardInterrupt

    slow = {**QUICK, "epochs": 100000, "patience": 0}
    with pytest.raises(KeyboardInterrupt):
        forecast.train(frame, horizon=6, progress=stop, **slow)
    assert told == [(0, 2)]


def test_a_model_is_rebuilt_from_its_parts() -> None:
    frame = wave({"A": 100})
    model = forecast.train(frame, horizon=6, **QUICK)["A"]
    copy = forecast.Model.from_parts(model.header, model.tensors)
    assert copy.header == model.header
    assert arrow(forecast.predict(copy, frame)).equals(arrow(forecast.predict(model, frame)))
    tensors = model.tensors
    del tensors["rnn.bias_hh_l1"]
    with pytest.raises(headrace.Corrupt, match=r"rnn\.bias_hh_l1"):
        forecast.Model.from_parts(model.header, tensors)


def test_every_option_has_a_help_and_is_known() -> None:
    for of in ("train", "predict", "backtest"):
        for option in forecast.options(of):
            assert option.help
            assert option.type in {"integer", "number", "text", "boolean", "integers", "numbers",
                                   "texts"}  # fmt: skip


@pytest.mark.parametrize("distribution", ["student_t", "normal", "negative_binomial"])
@pytest.mark.parametrize("stores", [0, 3])
def test_onnx_files_give_our_distribution_parameters(distribution: str, stores: int) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed (requirements-dev.txt)")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    frame = wave({"A": 80, "B": 80, "C": 80})
    frame["target"] = np.floor(frame.target)
    frame["store"] = frame.item_id.map({"A": "x", "B": "y", "C": "z"})
    model = forecast.train(
        frame, horizon=6, scope="global", distribution=distribution,
        categories=["store"] if stores else [], **QUICK,
    )  # fmt: skip
    files = model.to_onnx()
    for content in files:
        onnx.checker.check_model(onnx.load_from_string(content), full_check=True)
    encoder, decoder = (runtime.InferenceSession(content) for content in files)

    # The same inputs through our own training step.
    net = _native.forecast
    lags, others, steps, batch = 4, 6, 9, 3
    embeddings = [(4, 2)] if stores else []
    shape = net.NetworkShape(lags, others, embeddings, 8, 2, distribution)
    parameters = np.zeros(net.parameter_total(shape), "f4")
    for name, extents, at in net.parameter_tensors(shape):
        parameters[at : at + math.prod(extents)] = model.tensors[name].ravel()
    rng = np.random.default_rng(4)
    inputs = rng.standard_normal((steps, batch, shape.inputs)).astype("f4")
    categories = np.array([[1], [2], [3]][:batch], np.int64)[:, : len(embeddings)]
    step = net.TrainingStep(shape, batch, steps)
    ones = np.ones((steps, batch), "f4")
    step.fill(inputs, ones, ones, np.ones(batch, "f4"), np.ascontiguousarray(categories))
    step.loss(parameters)
    expected = np.asarray(step.distributions())

    feed = {"lags": inputs[:, :, :lags], "other": inputs[:, :, shape.inputs - others :]}
    if stores:
        feed["categories"] = np.broadcast_to(categories, (steps, batch, 1)).copy()
    h, c, whole = encoder.run(["h_out", "c_out", "parameters"], feed)
    assert np.abs(whole - expected).max() < 1e-4 * np.abs(expected).max()

    # Step by step from zero the decoder comes to the same state and parameters.
    state = {"h": np.zeros_like(h), "c": np.zeros_like(c)}
    for t in range(steps):
        one = {name: value[t : t + 1] for name, value in feed.items()}
        h_out, c_out, last = decoder.run(["h_out", "c_out", "parameters"], {**one, **state})
        state = {"h": h_out, "c": c_out}
        assert np.abs(last[0] - expected[t]).max() < 1e-4 * np.abs(expected).max()
    assert np.abs(h_out - h).max() < 1e-5
    assert np.abs(c_out - c).max() < 1e-5


def test_samples_are_a_column_of_lists_whose_quantiles_are_those_beside_them(
    tmp_path: Path, run_headrace
) -> None:
    wave({"A": 120, "B": 100}).to_csv(tmp_path / "t.csv", index=False)
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--global", *SMALL)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "f.parquet"
    words = ["forecast", "predict", tmp_path / "t.csv", "--model", "m", "--samples", "21"]
    done = run_headrace(*words, "--keep-samples", "--out", out)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(out)
    assert table.schema.field("samples").type == pa.list_(pa.float32(), 21)
    samples = np.array(table["samples"].to_pylist())
    np.testing.assert_allclose(samples.mean(1), table["mean"].to_numpy(), rtol=1e-6)
    for level in (0.1, 0.5, 0.9):
        wanted = np.quantile(samples, level, axis=1)
        np.testing.assert_allclose(table[f"q{level}"].to_numpy(), wanted, rtol=1e-6)

    done = run_headrace(*words, "--keep-samples", "--out", tmp_path / "f.csv")
    assert done.returncode == 0, done.stderr
    text = pd.read_csv(tmp_path / "f.csv")["samples"]
    np.testing.assert_allclose(
        np.array([[float(v) for v in row.split()] for row in text]), samples, rtol=1e-6
    )
    wave({"A": 126, "B": 106}).to_csv(tmp_path / "later.csv", index=False)
    judged = run_headrace("forecast", "evaluate", out, "--history", tmp_path / "t.csv",
                          "--actuals", tmp_path / "later.csv")  # fmt: skip
    assert judged.returncode == 0, judged.stderr
    assert "2 items" in judged.stdout


def test_a_naive_winner_forecasts_out_of_the_registry_as_a_network_does(
    tmp_path: Path, run_headrace
) -> None:
    frame = wave({"A": 120, "B": 100})
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--global-members", "1", *SMALL)
    assert done.returncode == 0, done.stderr
    listed = run_headrace("models", "list", "m", "--kind", "seasonal_naive", "--json")
    assert listed.returncode == 0, "after two steps no network wins against the waves' last day"
    out = tmp_path / "f.parquet"
    done = run_headrace("forecast", "predict", tmp_path / "t.csv", "--model", "m", "--out", out)
    assert done.returncode == 0, done.stderr
    table = pq.read_table(out).to_pandas()
    for item in ("A", "B"):
        rows = table[table.item_id == item]
        if set(rows.model) == {"seasonal_naive"}:
            day_before = frame[frame.item_id == item].target.to_numpy()[-24:-18]
            np.testing.assert_allclose(rows["mean"], day_before, rtol=1e-9)
            return
    pytest.fail("no forecast was made by seasonal naive")


def with_promotion(lengths: dict[str, int], future: int) -> pd.DataFrame:
    """Waves with a category and a covariate that is known for some rows after the last value."""
    frames = []
    for item, one in wave({k: n + future for k, n in lengths.items()}).groupby("item_id"):
        one = one.assign(region="north" if item == "A" else "south")
        one["promotion"] = (np.arange(len(one)) % 5 == 0).astype(float)
        one.loc[one.index[lengths[str(item)] :], "target"] = np.nan
        frames.append(one)
    return pd.concat(frames, ignore_index=True)


def test_forecasts_start_after_the_last_value_however_much_future_is_known() -> None:
    frame = with_promotion({"A": 120, "B": 100}, future=30)
    models = forecast.train(frame, horizon=6, dynamic_reals=["promotion"], **QUICK)
    table = arrow(forecast.predict(models, frame, samples=5))
    assert table.num_rows == 12
    stamps = table["timestamp"].to_pylist()
    assert stamps[0] == pd.Timestamp("2015-07-06 00:00")  # 120 hours after 2015-07-01
    assert stamps[6] == pd.Timestamp("2015-07-05 04:00")


def test_one_name_may_stand_for_a_list_of_one() -> None:
    frame = with_promotion({"A": 60, "B": 60}, future=6)
    model = forecast.train(
        frame, horizon=6, scope="global", categories="region", dynamic_reals="promotion", **QUICK
    )
    assert model.header["features"]["categories"] == ["region"]
    assert model.header["features"]["dynamic_reals"] == ["promotion"]
    # A warm start reads the same columns without being told.
    local = forecast.train(frame, horizon=6, warm_start=model, **QUICK)
    assert local["A"].header["features"]["categories"] == ["region"]


def test_a_global_training_says_what_it_left_out() -> None:
    frame = pd.concat([wave({"A": 60, "short": 4, "twice": 30}), wave({"twice": 1})])
    told: list[tuple[int, int]] = []
    model = forecast.train(
        frame, horizon=6, scope="global", members=2, **{**QUICK, "batches_per_epoch": 40},
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert [failure.item for failure in model.errors] == ["twice"]
    assert any("1 of 2 series are shorter" in note for note in model.notes)
    assert {total for _, total in told} <= {0, 4}  # two members of two epochs


@pytest.mark.parametrize("kind", ["as given", "whole numbers", "dates", "nullable"])
def test_a_table_of_forecasts_may_come_from_anywhere(kind: str) -> None:
    days = pd.date_range("2026-01-05", periods=60, freq="D")
    frame = pd.DataFrame({"item_id": "A", "timestamp": days, "target": np.arange(60) % 7 + 1})
    rows = pd.DataFrame(
        {"item_id": "A", "timestamp": days[56:58], "mean": [1.0, 2.0], "q0.5": [1.0, 2.0]}
    )
    table = pa.Table.from_pandas(rows, preserve_index=False)
    if kind == "whole numbers":
        table = table.set_column(2, "mean", pa.array([1, 2]))
    elif kind == "dates":
        table = table.set_column(1, "timestamp", table["timestamp"].cast(pa.date32()))
    elif kind == "nullable":
        rows = rows.astype({"mean": "Int64", "q0.5": "Int64"})
        table = pa.Table.from_pandas(rows, preserve_index=False)
    scores = forecast.evaluate(table, frame[:56], frame)
    assert scores.errors == []
    assert scores.totals["model"]["smape"] == 0.0  # 56 is a multiple of 7: 1 and 2 are what came
    assert "mean_wql" not in scores.totals["model"]  # of one level it would be another number


@pytest.mark.parametrize(
    ("column", "values"),
    [("timestamp", ["soon", "later"]), ("mean", ["1", "2"]), ("q0.5", [None, None])],
)
def test_a_table_of_forecasts_that_cannot_be_read_names_what_is_wrong(
    column: str, values: list[object]
) -> None:
    frame = wave({"A": 60})
    rows = pa.table(
        {"item_id": ["A", "A"], "timestamp": frame.timestamp[:2].astype("datetime64[us]"),
         "mean": [1.0, 2.0], "q0.5": [1.0, 2.0]}
    )  # fmt: skip
    at = rows.column_names.index(column)
    with pytest.raises(headrace.InvalidArgument, match=r"row 0" if None in values else column):
        forecast.evaluate(rows.set_column(at, column, pa.array(values)), frame, frame)


def test_covariates_go_through_train_predict_and_backtest_of_the_command_line(
    tmp_path: Path, run_headrace
) -> None:
    table = tmp_path / "t.csv"
    with_promotion({"A": 120, "B": 100}, future=10).to_csv(table, index=False)
    named = ("--categories", "region", "--dynamic-reals", "promotion")
    for scope in (("--global",), ("--global-members", "1")):
        done = run_headrace("forecast", "train", table, *scope, *named, *SMALL)
        assert done.returncode == 0, done.stderr
        out = tmp_path / "f.parquet"
        done = run_headrace("forecast", "predict", table, "--model", "m", "--out", out)
        assert done.returncode == 0, done.stderr
        stamps = pq.read_table(out)["timestamp"].to_pylist()
        assert len(stamps) == 12
        assert stamps[0] == pd.Timestamp("2015-07-06 00:00")
        run_headrace("models", "delete", "m", "--yes")
    done = run_headrace("forecast", "backtest", table, *named, *SMALL[:2], *SMALL[4:])
    assert done.returncode == 0, done.stderr
    assert "2 items" in done.stdout


def shops() -> pd.DataFrame:
    """Shop A is open every day; B is shut at weekends; C has one row."""
    days = pd.date_range("2026-01-05", periods=84, freq="D")
    rows = pd.DataFrame({"item_id": "A", "timestamp": days, "target": np.arange(84) % 7 + 1.5})
    weekdays = rows[rows.timestamp.dt.day_of_week < 5].assign(item_id="B")
    return pd.concat([rows, weekdays, rows[:1].assign(item_id="C")], ignore_index=True)


def test_the_frequency_is_found_once_for_all_items(tmp_path: Path, run_headrace) -> None:
    shops().to_csv(tmp_path / "t.csv", index=False)
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--global-members", "1", *SMALL)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "the frequency is D" in done.stderr
    out = tmp_path / "f.parquet"
    done = run_headrace("forecast", "predict", tmp_path / "t.csv", "--model", "m", "--out", out)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(out).to_pandas()
    b = rows[rows.item_id == "B"].timestamp
    assert list(b) == list(pd.date_range("2026-03-28", periods=6, freq="D"))  # from a Saturday on

    # The same with a stored model to start from, and with options of the validation tail.
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--global", *SMALL[:2],
                        "--model", "start", *SMALL[4:], "--seed", "7")  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--warm-start", "start",
                        "--horizon", "6", "--model", "warm", "--refit", "full", "--monitor",
                        "validation", "--epochs", "1", "--batches-per-epoch", "2")  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    listed = run_headrace("models", "list", "warm", "--json")
    assert listed.stdout.count('"warm/') >= 3
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--warm-start", "nobody",
                        "--horizon", "6")  # fmt: skip
    assert done.returncode == 2
    assert "--warm-start" in done.stderr


def test_a_global_training_on_the_command_line_prints_what_it_left_out(
    tmp_path: Path, run_headrace
) -> None:
    pd.concat([wave({"A": 60, "twice": 30}), wave({"twice": 1})]).to_csv(tmp_path / "t.csv")
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--global", *SMALL)
    assert done.returncode == 1
    assert "failed: twice:" in done.stderr
    assert "-2" not in done.stderr
    done = run_headrace("forecast", "train", tmp_path / "t.csv", "--global", *SMALL, "--json")
    said = json.loads(done.stdout)
    assert [one["item"] for one in said["errors"]] == ["twice"]
    assert any("the frequency is h" in note for note in said["notes"])


def test_an_evaluation_takes_its_season_and_names_mixed_methods(
    tmp_path: Path, run_headrace
) -> None:
    days = pd.date_range("2026-01-05", periods=62, freq="D")
    target = np.random.default_rng(5).integers(1, 90, 62)
    frame = pd.DataFrame({"item_id": "A", "timestamp": days, "target": target})
    frame[:56].to_csv(tmp_path / "past.csv", index=False)
    frame.to_csv(tmp_path / "all.csv", index=False)
    levels = {f"q0.{k}": target[49:55] for k in range(1, 10)}
    pd.DataFrame(
        {"item_id": "A", "timestamp": days[56:], "mean": target[49:55], **levels,
         "model": "seasonal_naive"}
    ).to_csv(tmp_path / "f.csv", index=False)  # fmt: skip
    done = run_headrace(
        "forecast", "evaluate", tmp_path / "f.csv", "--history", tmp_path / "past.csv",
        "--actuals", tmp_path / "all.csv", "--season", "7", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "deepar" not in said
    for name in ("mase", "smape", "mean_wql"):
        assert said["model"][name] == said["seasonal_naive"][name]


def test_the_horizon_of_a_table_in_memory_is_its_metadatas(tmp_path: Path) -> None:
    metadata = tmp_path / "metadata.json"
    metadata.write_text('{"freq": "h", "prediction_length": 5}')
    table = forecast.Table(small_lake.table(), metadata=metadata)
    quick = {name: value for name, value in small_lake.TRAIN.items() if name != "horizon"}
    model = forecast.train(table, scope="global", **quick)
    assert model.header["horizon"] == 5
    scores = forecast.backtest(table, scope="global", **quick)
    assert len(scores.steps) == 5
    assert forecast.train(table, scope="global", **small_lake.TRAIN).header["horizon"] == 12
