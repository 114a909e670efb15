# SPDX-License-Identifier: Apache-2.0
"""Static covariates in a table of their own give the bits that columns in the first one give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pytest

import headrace
import small_lake
from headrace import forecast, registry

STATICS = pandas.DataFrame(
    {
        "item_id": ["s2", "s0", "s1"],  # in another order than the first table
        "region": ["north", "south", "north"],
        "size": [2.5, 0.1, 7.0],
        "note": ["x", "y", "z"],  # nobody asks for it
    }
)
NAMED = {"categories": ["region"], "static_reals": ["size"]}
UNNAMED = (
    "is given, but none of its columns; name them with categories (--categories) or static_reals "
    "(--static-reals)"
)
FLAGS = ["--categories", "region", "--static-reals", "size"]
LOCAL = ["--global-members", "0"]


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The first table, the second, and both in one."""
    first, second, both = (tmp_path / name for name in ("t.csv", "items.csv", "both.csv"))
    frame = small_lake.table().to_pandas()
    frame.to_csv(first, index=False)
    STATICS.to_csv(second, index=False)
    frame.merge(STATICS.drop(columns="note"), on="item_id").to_csv(both, index=False)
    return first, second, both


def assert_same_bits(a: forecast.Model, b: forecast.Model) -> None:
    left, right = a.tensors, b.tensors
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].tobytes() == right[name].tobytes(), name


def test_python_takes_it_as_a_path_or_in_memory(tables: tuple[Path, Path, Path]) -> None:
    first, second, both = tables
    options = {**small_lake.TRAIN, **NAMED}
    inline = forecast.train(both, scope="global", **options)
    frame = small_lake.table().to_pandas()
    forms = [
        forecast.Table(first, static_table=second),
        forecast.Table(first, static_table=STATICS),
        forecast.Table(frame, static_table=str(second)),
        forecast.Table(frame, static_table=STATICS),
    ]
    expected = pandas.DataFrame(_rows(forecast.predict(inline, both)))
    for table in forms:
        assert_same_bits(forecast.train(table, scope="global", **options), inline)
        made = pandas.DataFrame(_rows(forecast.predict(inline, table)))
        pandas.testing.assert_frame_equal(made, expected, check_exact=True)
    local = forecast.train(forms[0], items=["s1"], **options)
    assert_same_bits(local["s1"], forecast.train(both, items=["s1"], **options)["s1"])


def _rows(forecasts: forecast.Forecasts) -> dict[str, np.ndarray]:
    import pyarrow as pa

    return pa.table(forecasts).to_pydict()


def test_the_command_line_and_its_pipeline_take_it(
    tables: tuple[Path, Path, Path], tmp_path: Path, run_headrace
) -> None:
    first, second, both = tables
    runs = {"inline": [both], "joined": [first, "--static-table", second]}
    for name, words in runs.items():
        done = run_headrace(
            *("forecast", "train", *words, *FLAGS, *small_lake.FAST, *LOCAL),
            *("--model", name, "--dir", tmp_path / name),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        done = run_headrace(
            *("forecast", "train", *words, *FLAGS, *small_lake.FAST, "--global"),
            *("--model", f"{name}-all"),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        out = tmp_path / f"{name}.csv"
        words = ["forecast", "predict", *words, "--model", f"{name}-all", "--out", out]
        assert run_headrace(*words).returncode == 0
    assert (tmp_path / "inline.csv").read_bytes() == (tmp_path / "joined.csv").read_bytes()
    local = [next((tmp_path / name).rglob("forecasts.csv")).read_bytes() for name in runs]
    assert local[0] == local[1]


def test_an_activity_takes_it(
    tables: tuple[Path, Path, Path], tmp_path: Path, run_headrace
) -> None:
    first, _, both = tables
    made = []
    for name, table, more in [
        ("joined", first, {"static_table": "items.csv"}),  # beside the pipeline
        ("inline", both, {}),
    ]:
        path = small_lake.pipeline(
            tmp_path / f"{name}.json", table, train=NAMED, **more, choose=False
        )
        done = run_headrace("flow", "run", path, "--dir", tmp_path / name)
        assert done.returncode == 0, done.stdout + done.stderr
        made.append(next((tmp_path / name).rglob("forecasts.csv")).read_bytes())
    assert made[0] == made[1]
    r = registry.open(tmp_path / "registry")
    header = r.load("m/s0:1").header
    assert header["features"]["categories"] == ["region"]


def test_errors_name_items_and_columns(
    tables: tuple[Path, Path, Path], tmp_path: Path, run_headrace
) -> None:
    first, second, both = tables
    words = ["forecast", "train", "--global", *FLAGS, *small_lake.FAST]

    def message(table: Path, statics: pandas.DataFrame, *more: str) -> str:
        statics.to_csv(second, index=False)
        done = run_headrace(*words, table, "--static-table", second, "--json", *more)
        assert done.returncode == 2, done.stderr
        return json.loads(done.stdout or done.stderr)["error"]["message"]

    assert "1 of 3 items of" in (told := message(first, STATICS[1:]))
    assert 'have no row: "s2"; add one for each' in told
    twice = pandas.concat([STATICS, STATICS[1:2]])
    assert '1 items have more than one row: "s0"' in message(first, twice)
    told = message(first, STATICS.drop(columns="size"))
    assert f'{first}: there is no column "size"; found: "item_id", "timestamp", "target"' in told
    assert 'items.csv: there is no column "size"; found: "item_id", "region", "note"' in told
    told = message(both, STATICS)
    assert f'column "region" is in {both} and in {second}' in told

    done = run_headrace("forecast", "train", first, "--horizon", "12", "--static-table", second)
    assert done.returncode == 2
    assert UNNAMED in done.stderr
    with pytest.raises(headrace.NotFound, match='have no row: "s2"'):
        table = forecast.Table(first, static_table=STATICS[1:])
        forecast.train(table, scope="global", **small_lake.TRAIN, **NAMED)


def test_a_table_of_which_no_column_is_named_is_refused_wherever_training_is_asked_for(
    tables: tuple[Path, Path, Path], tmp_path: Path, run_headrace
) -> None:
    first, second, _ = tables
    for command in (["train"], ["train", "--global"], ["backtest"]):
        done = run_headrace(
            *("forecast", *command, first, *small_lake.FAST, "--static-table", second)
        )
        assert done.returncode == 2
        assert f"static_table (--static-table) {second} {UNNAMED}" in done.stderr
    for statics, name in [(second, str(second)), (STATICS, "in memory")]:
        for source in (first, small_lake.table()):
            table = forecast.Table(source, static_table=statics)
            for function, scope in [(forecast.train, "local"), (forecast.backtest, "global")]:
                with pytest.raises(headrace.InvalidArgument) as raised:
                    function(table, scope=scope, **small_lake.TRAIN)
                assert f"static_table (--static-table) {name} {UNNAMED}" in str(raised.value)
    path = small_lake.pipeline(tmp_path / "p.json", first, static_table=str(second), choose=False)
    done = run_headrace("flow", "run", path, "--dir", tmp_path / "run")
    assert done.returncode == 1
    assert UNNAMED in done.stdout + done.stderr

    # A model says itself which columns it reads; scores read none.
    model = forecast.train(first, scope="global", **small_lake.TRAIN)
    table = forecast.Table(first, static_table=second)
    made = forecast.predict(model, table)
    assert not made.errors
    with pytest.raises(headrace.Mismatch, match="nothing was judged"):  # but it was read
        forecast.evaluate(made, table, table)
