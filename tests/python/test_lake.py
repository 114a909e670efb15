# SPDX-License-Identifier: Apache-2.0
"""Tables: files written by others, Arrow both ways, predicates against pyarrow's filter."""

from __future__ import annotations

import csv
import datetime
import gc
import gzip
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

import headrace
from headrace import lake

UTC = datetime.timezone.utc


def arrow(rows: object) -> pa.Table:
    return pa.RecordBatchReader.from_stream(rows).read_all()


def test_every_plain_type_of_pyarrow_is_read(tmp_path: Path) -> None:
    stamps = [datetime.datetime(2015, 7, 1, 10, 30, 15, 123456), None]
    table = pa.table(
        {
            "i8": pa.array([1, None], pa.int8()),
            "u32": pa.array([4294967295, None], pa.uint32()),
            "u64": pa.array([2**63 - 1, None], pa.uint64()),
            "f16": pa.array([np.float16(0.5), None], pa.float16()),
            "f32": pa.array([0.1, None], pa.float32()),
            "dec": pa.array(["12.34", None]).cast(pa.decimal128(10, 2)),
            "dec256": pa.array(["-12.34", None]).cast(pa.decimal256(40, 2)),
            "s": pa.array(["a", None]),
            "ls": pa.array(["a", None], pa.large_string()),
            "cat": pa.array(["x", None]).dictionary_encode(),
            "ts_s": pa.array([1435746615, None], pa.timestamp("s")),
            "ts_ms": pa.array([1435746615123, None], pa.timestamp("ms", "UTC")),
            "ts_us": pa.array(stamps, pa.timestamp("us")),
            "ts_ns": pa.array([-1, None], pa.timestamp("ns", "Europe/Berlin")),
            "d32": pa.array([datetime.date(2015, 7, 1), None], pa.date32()),
            "d64": pa.array([datetime.date(1969, 12, 31), None], pa.date64()),
            "b": pa.array([True, None]),
            "nothing": pa.nulls(2),
            "list": pa.array([[1, 2], None]),
            "struct": pa.array([{"x": 1}, None]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    opened = lake.Table(tmp_path / "t.parquet")
    unsupported = [field.name for field in opened.schema if field.type == "unsupported"]
    assert unsupported == ["list", "struct"]
    rows = arrow(opened.read())
    assert rows.column_names == table.column_names[:-2]
    assert rows.slice(1).to_pylist() == [dict.fromkeys(rows.column_names)]
    first = rows.slice(0, 1).to_pylist()[0]
    assert first == {
        "i8": 1,
        "u32": 4294967295,
        "u64": 2**63 - 1,
        "f16": 0.5,
        "f32": float(np.float32(0.1)),
        "dec": 12.34,
        "dec256": -12.34,
        "s": "a",
        "ls": "a",
        "cat": "x",
        "ts_s": datetime.datetime(2015, 7, 1, 10, 30, 15),
        "ts_ms": datetime.datetime(2015, 7, 1, 10, 30, 15, 123000, tzinfo=UTC),
        "ts_us": stamps[0],
        # One nanosecond before the epoch lies in the microsecond before it.
        "ts_ns": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "d32": datetime.date(2015, 7, 1),
        "d64": datetime.date(1969, 12, 31),
        "b": True,
        "nothing": None,
    }
    assert rows.schema.field("ts_ns").type == pa.timestamp("us", "Europe/Berlin")
    with pytest.raises(headrace.Unsupported, match='column "list" has type list'):
        opened.read(columns=["list"])


@pytest.mark.parametrize("rows_in_group", [1, 2, 6])
def test_lists_of_floats_are_read_whatever_their_kind(tmp_path: Path, rows_in_group: int) -> None:
    lists = [[0.5, -1.25], None, [], [None, 3.0], [1e-3] * 5, [2.0]]
    pairs = [[0.5, -1.25], None, [0.0, 1.0], [None, 3.0], [7.0, 8.0], [9.0, 9.5]]
    table = pa.table(
        {
            "f32": pa.array(lists, pa.list_(pa.float32())),
            "f64": pa.array(lists, pa.list_(pa.float64())),
            "large": pa.array(lists, pa.large_list(pa.float64())),
            "fixed": pa.array(pairs, pa.list_(pa.float32(), 2)),
            "key": pa.array(range(6)),
        }
    )
    expected = [
        {
            name: None if value is None else np.array(value, np.float32)
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]

    def check(rows: pa.Table, wanted: list[dict[str, object]]) -> None:
        assert rows.schema.field("f64").type.value_type == pa.float32()
        for row, one in zip(rows.to_pylist(), wanted, strict=True):
            for name, value in one.items():
                np.testing.assert_array_equal(
                    np.array(row[name], np.float32 if row[name] is not None else None), value
                )

    pq.write_table(table, tmp_path / "t.parquet", row_group_size=rows_in_group)
    opened = lake.Table(tmp_path / "t.parquet")
    assert {f.name: f.type for f in opened.schema} == {
        **dict.fromkeys(("f32", "f64", "large", "fixed"), "floats"),
        "key": "int64",
    }
    check(arrow(opened.read()), expected)
    check(arrow(opened.read(where=[("key", ">=", 3)])), expected[3:])
    with pytest.raises(headrace.InvalidArgument, match="column of type floats"):
        opened.read(where=[("f32", "==", 0.5)])
    lake.write_parquet(tmp_path / "again.parquet", opened.read())
    check(arrow(lake.Table(tmp_path / "again.parquet").read()), expected)

    pq.write_table(pa.table({"y": [[1.0, 1e300]]}), tmp_path / "wide.parquet")
    with pytest.raises(headrace.InvalidArgument, match=r"1e\+300 in row 0 does not fit a float"):
        lake.Table(tmp_path / "wide.parquet").read()


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_files_of_pyarrow_in_its_forms_are_read(
    tmp_path: Path, compression: str, version: str
) -> None:
    table = pa.table({"s": ["a", "b", None] * 1000, "x": np.arange(3000) / 7})
    pq.write_table(
        table,
        tmp_path / "t.parquet",
        compression=compression,
        version=version,
        row_group_size=700,
        data_page_version="2.0" if version == "2.6" else "1.0",
        use_dictionary=version == "1.0",
    )
    opened = lake.Table(tmp_path / "t.parquet")
    assert opened.files[0].row_groups == 5
    assert arrow(opened.read()).equals(table)


def test_what_we_write_is_what_pyarrow_reads(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": ["b", "a", None],
            "t": pa.array([0, None, 5], pa.timestamp("us", "UTC")),
            "y": pa.array([0.5, float("nan"), None]),
            "n": pa.array([1, -(2**63), None]),
            "d": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
            "f": [True, False, None],
        }
    )
    lake.write_parquet(tmp_path / "t.parquet", table, group_by="id")
    back = pq.read_table(tmp_path / "t.parquet")
    assert back.schema.equals(table.schema)
    assert back.drop_columns(["y"]).equals(table.drop_columns(["y"]))
    assert str(back["y"].to_pylist()) == str(table["y"].to_pylist())
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 3
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_hive_folders_of_pyarrow_and_pandas_are_one_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"y": np.arange(6) / 2, "year": [2015, 2016] * 3, "city": list("ababab")})
    frame.to_parquet(tmp_path / "lake", partition_cols=["year", "city"], index=False)
    table = lake.Table(tmp_path / "lake")
    assert [field.name for field in table.schema if field.partition] == ["year", "city"]
    rows = table.read(where=[("year", "==", 2016)])
    assert rows.stats["files_read"] == 1
    assert sorted(arrow(rows)["y"].to_pylist()) == [0.5, 1.5, 2.5]
    assert table.distinct("city") == {"a": 3, "b": 3}


def test_csv_files_of_pandas_are_read_as_pandas_reads_them(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "id": ['a,"b"', "line\nend", "plain"],
            "t": pd.to_datetime(["2015-07-01 00:00", "2015-07-01 10:00", "2016-01-01 00:00"]),
            "x": [0.1, None, -1e300],
            "n": [1, 2, 3],
        }
    )
    for name in ("t.csv", "t.csv.gz"):
        frame.to_csv(tmp_path / name, index=False)
        back = arrow(lake.Table(tmp_path / name).read()).to_pandas()
        pd.testing.assert_frame_equal(back, frame, check_dtype=False)


def test_csv_we_write_is_read_by_python(tmp_path: Path) -> None:
    table = pa.table({"s": ['q"uo,te', "", None], "x": [0.1, 1e22, None]})
    lake.write_csv(tmp_path / "t.csv.gz", table)
    with gzip.open(tmp_path / "t.csv.gz", "rt", newline="") as file:
        assert list(csv.reader(file)) == [["s", "x"], ['q"uo,te', "0.1"], ["", "1e+22"], ["", ""]]


def test_frames_and_streams_of_others_are_taken(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": ["a", "b"], "t": pd.to_datetime(["2015-07-01"] * 2), "y": [1, 2]})
    frame["id"] = frame["id"].astype("category")
    reader = pa.RecordBatchReader.from_batches(
        pa.schema([("y", pa.int32())]),
        iter([pa.record_batch({"y": pa.array([1, 2], pa.int32())})] * 3),
    )
    lake.write_parquet(tmp_path / "pandas.parquet", frame)
    lake.write_parquet(tmp_path / "reader.parquet", reader)
    assert pq.read_table(tmp_path / "pandas.parquet").to_pylist()[1] == {
        "id": "b",
        "t": datetime.datetime(2015, 7, 1),
        "y": 2,
    }
    assert pq.read_table(tmp_path / "reader.parquet")["y"].to_pylist() == [1, 2] * 3
    with pytest.raises(headrace.InvalidArgument, match="found list"):
        lake.write_parquet(tmp_path / "no.parquet", [1, 2])


def test_an_error_of_the_producer_comes_back(tmp_path: Path) -> None:
    def batches() -> object:
        yield pa.record_batch({"y": [1.0]})
        raise ValueError("the source broke off")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("y", pa.float64())]), batches())
    with pytest.raises(headrace.Error, match="the source broke off"):
        lake.write_parquet(tmp_path / "t.parquet", reader)
    assert list(tmp_path.iterdir()) == []


def test_streams_are_given_once_and_rows_often(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": np.arange(100000.0)}), tmp_path / "t.parquet")
    table = lake.Table(tmp_path / "t.parquet")
    stream = table.scan(batch_rows=1000)
    reader = pa.RecordBatchReader.from_stream(stream)
    assert max(batch.num_rows for batch in reader) <= 1000
    with pytest.raises(headrace.InvalidArgument, match="taken already"):
        stream.__arrow_c_stream__()
    rows = table.read()
    assert len(rows) == 100000
    for _ in range(30):
        assert arrow(rows).num_rows == 100000
        table.scan().__arrow_c_stream__()  # dropped without being read
    gc.collect()
    assert arrow(table).num_rows == 100000


def test_our_arrow_stays_apart_from_one_loaded_globally(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": [1.5]}), tmp_path / "t.parquet")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, os; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); import pyarrow, "
            "pyarrow.parquet; from headrace import lake; "
            "print(pyarrow.RecordBatchReader.from_stream(lake.Table(sys.argv[1]))"
            ".read_all().to_pylist())",
            str(tmp_path / "t.parquet"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[{'y': 1.5}]"


def test_errors_are_exceptions_that_name_file_and_column(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFound, match="no such file or folder"):
        lake.Table(tmp_path / "none")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(headrace.Corrupt, match=r"bad\.parquet"):
        lake.Table(tmp_path / "bad.parquet")
    pq.write_table(pa.table({"y": [1]}), tmp_path / "t.parquet")
    table = lake.Table(tmp_path / "t.parquet")
    with pytest.raises(headrace.NotFound, match='no column "z"; found: "y"'):
        table.read(columns=["z"])
    with pytest.raises(headrace.InvalidArgument, match='"x" does not fit a column of type int64'):
        table.read(where=[("y", "==", "x")])
    with pytest.raises(headrace.InvalidArgument, match='operator "!="'):
        table.read(where=[("y", "!=", 1)])
    with pytest.raises(headrace.InvalidArgument, match="compare with None"):
        table.read(where=[("y", "==", None)])
    pq.write_table(pa.table({"y": pa.array([2**63], pa.uint64())}), tmp_path / "u.parquet")
    with pytest.raises(headrace.InvalidArgument, match="9223372036854775808 in row 0"):
        lake.Table(tmp_path / "u.parquet").read()


CASES = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

VALUES = {
    "i": st.none() | st.integers(-3, 3),
    "f": st.none() | st.sampled_from([float("nan"), -1.0, -0.0, 0.0, 0.5, 2.0, float("inf")]),
    "s": st.none() | st.text("ab\u00e4\U0001f600", max_size=2),
    "t": st.none()
    | st.sampled_from([datetime.datetime(2015, 7, 1, hour) for hour in (0, 1, 12, 23)]),
}
TYPES = {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "t": pa.timestamp("us")}
FILTERS = {
    "==": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@st.composite
def tables_and_conditions(draw: st.DrawFn) -> tuple[pa.Table, int, list[tuple[str, str, object]]]:
    rows = draw(st.integers(0, 30))
    columns = {
        name: draw(st.lists(values, min_size=rows, max_size=rows))
        for name, values in VALUES.items()
    }
    order = draw(st.sampled_from([None, "i", "s", "t"]))
    table = pa.table({name: pa.array(columns[name], TYPES[name]) for name in columns})
    if order is not None:
        table = table.sort_by(order)
    conditions = []
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(list(VALUES)))
        value = VALUES[name].filter(lambda v: v is not None)
        op = draw(st.sampled_from([*FILTERS, "in"]))
        conditions.append(
            (name, op, draw(st.lists(value, max_size=3)) if op == "in" else draw(value))
        )
    return table, draw(st.integers(1, 8)), conditions


@CASES
@given(tables_and_conditions())
def test_a_predicate_reads_what_pyarrow_filters(
    tmp_path: Path, case: tuple[pa.Table, int, list[tuple[str, str, object]]]
) -> None:
    table, group, conditions = case
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=group)
    wanted = np.ones(table.num_rows, dtype=bool)
    for name, op, value in conditions:
        if op == "in":
            masks = [pc.equal(table[name], pa.scalar(v, TYPES[name])) for v in value]  # type: ignore[attr-defined]
        else:
            masks = [FILTERS[op](table[name], pa.scalar(value, TYPES[name]))]
        mask = np.zeros(table.num_rows, dtype=bool)
        for one in masks:
            mask |= np.asarray(pc.fill_null(one, False).combine_chunks().to_numpy(False))
        wanted &= mask
    expected = table.filter(pa.array(wanted))
    rows = lake.Table(tmp_path / "t.parquet").read(where=conditions)
    assert str(arrow(rows).to_pylist()) == str(expected.to_pylist())
    assert rows.stats["rows_returned"] == expected.num_rows


@CASES
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
    )
)
def test_any_table_goes_through_our_csv_and_comes_back(
    tmp_path: Path, cells: list[tuple[str | None, float | None, int | None]]
) -> None:
    table = pa.table(
        {
            "s": pa.array([c[0] for c in cells], pa.string()),
            "x": pa.array([c[1] for c in cells], pa.float64()),
            "n": pa.array([c[2] for c in cells], pa.int64()),
        }
    )
    lake.write_csv(tmp_path / "t.csv", table)
    back = lake.Table(
        tmp_path / "t.csv", types={"s": "string", "x": "float64", "n": "int64"}
    ).read()
    assert arrow(back).equals(table)


M4 = Path(__file__).resolve().parents[2] / "examples" / "m4_hourly"


def test_inspect_tells_what_a_table_holds(run_headrace, headrace_json) -> None:
    value = headrace_json("lake", "inspect", M4 / "lake")
    assert value["rows"] == 353500
    assert value["row_groups"] == 18
    assert value["sorted_by"] == ["item_id"]
    assert [column["name"] for column in value["columns"]] == ["item_id", "timestamp", "target"]
    assert value["snapshot"] == lake.Table(M4 / "lake").digest
    text = run_headrace("lake", "inspect", M4 / "lake")
    assert text.returncode == 0
    assert "353500 rows, 6 files" in text.stdout
    assert "row groups ascend by: item_id" in text.stdout


def test_head_prints_the_rows_asked_for_and_what_they_cost(run_headrace, headrace_json) -> None:
    done = run_headrace(
        "lake", "head", M4 / "lake", "--where", "item_id == H238", "--columns", "target", "-n", "2"
    )
    assert done.stdout.split() == ["target", "13.3", "12.4"]
    assert "2 rows; read 1 of 18 row groups" in done.stderr
    rows = headrace_json(
        "lake", "head", M4 / "Hourly-train.csv.gz", "--format", "wide_csv", "-n", "1"
    )
    assert rows == [{"item_id": "H1", "position": 0, "start": "1970-01-01T00:00:00", "target": 605}]
    none = run_headrace("lake", "head", M4 / "lake", "--where", "item_id == nobody")
    assert none.returncode == 1
    assert run_headrace("lake", "head", M4 / "lake", "--columns", "x").returncode == 2
    assert run_headrace("lake", "head", M4 / "lake", "--where", "nonsense").returncode == 2
