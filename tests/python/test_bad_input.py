# SPDX-License-Identifier: Apache-2.0
"""Tables that are not as they should be, through every command that reads one.

What is wrong with a table is told at once, and nothing is begun. What is wrong with one item fails
that item alone, with its reason; mended, it is the only one to run again.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import Run

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.parquet as pq  # noqa: E402

from small_lake import (  # noqa: E402
    FAST,
    HORIZON,
    HOURS,
    ITEMS,
    START,
    columns,
    good_lake,
    pipeline,
    table,
    write,
)

LOCAL = [*FAST, "--global-members", "0"]


@dataclass
class Made:
    """A registry with a model for each good item, and their forecasts in a file."""

    environment: dict[str, str]
    forecasts: Path
    actuals: Path


@pytest.fixture(scope="module")
def made(headrace_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    lake = good_lake(folder)
    own = {"HEADRACE_REGISTRY": str(folder / "registry"), "HEADRACE_RUNS": str(folder / "runs")}
    out = folder / "forecasts.parquet"
    for words in (
        ["train", lake, "--model", "m", *LOCAL],
        ["predict", lake, "--model", "m", "--out", out],
    ):
        subprocess.run(
            [headrace_binary, "forecast", *map(str, words)],
            env={**os.environ, **own},
            check=True,
            capture_output=True,
        )
    later = write(folder / "later" / "part-0.parquet", table(columns(hours=HOURS + HORIZON)))
    return Made({"HEADRACE_REGISTRY": own["HEADRACE_REGISTRY"]}, out, later)


def every_command(bad: Path, made: Made, out: Path) -> list[list[Any]]:
    """All that reads the table `bad`."""
    return [
        ["forecast", "train", bad, "--model", "m", *LOCAL],
        ["forecast", "train", bad, "--model", "m", "--global", *FAST],
        ["forecast", "predict", bad, "--model", "m", "--out", out],
        ["forecast", "backtest", bad, "--global", "--windows", "1", *FAST],
        ["forecast", "evaluate", made.forecasts, "--history", bad, "--actuals", made.actuals],
    ]


def flipped(data: bytes, begin: int, count: int) -> bytes:
    return (data[:begin] + bytes(byte ^ 0xFF for byte in data[begin : begin + count])) + data[
        begin + count :
    ]


def whole_file(tmp_path: Path, **options: Any) -> bytes:
    path = tmp_path / "whole.parquet"
    pq.write_table(table(), path, **options)
    return path.read_bytes()


def cut_file(tmp_path: Path) -> Path:
    data = whole_file(tmp_path)
    return write(tmp_path / "lake/part-0.parquet", data[: len(data) // 2])


def damaged_footer(tmp_path: Path) -> Path:
    data = whole_file(tmp_path)
    length = int.from_bytes(data[-8:-4], "little")
    return write(tmp_path / "lake/part-0.parquet", flipped(data, len(data) - 8 - length, 40))


def damaged_page(tmp_path: Path) -> Path:
    """A row group per item; in that of s1 some values have other bits, which a checksum tells."""
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    data = whole_file(tmp_path, row_group_size=HOURS, **options)
    chunk = pq.read_metadata(tmp_path / "whole.parquet").row_group(1).column(2)
    end = chunk.data_page_offset + chunk.total_compressed_size
    return write(tmp_path / "lake/part-0.parquet", flipped(data, end - 64, 16))


def missing_column(tmp_path: Path) -> Path:
    renamed = table().rename_columns(["item_id", "timestamp", "valeu"])
    return write(tmp_path / "lake/part-0.parquet", renamed)


def text_target(tmp_path: Path) -> Path:
    data = table()
    text = data.set_column(2, "target", data["target"].cast(pa.string()))
    return write(tmp_path / "lake/part-0.parquet", text)


def number_as_stamp(tmp_path: Path) -> Path:
    data = table()
    numbers = data.set_column(1, "timestamp", pa.array(range(data.num_rows)))
    return write(tmp_path / "lake/part-0.parquet", numbers)


def csv_lines(tmp_path: Path, stamp: Callable[[int], str], value: Callable[[int], str]) -> Path:
    data = columns()
    lines = [f"{item},{stamp(i)},{value(i)}" for i, item in enumerate(data["item_id"])]
    (tmp_path / "lake.csv").write_text("\n".join(["item_id,timestamp,target", *lines]) + "\n")
    return tmp_path / "lake.csv"


def iso(row: int) -> str:
    return (START + datetime.timedelta(hours=row % HOURS)).isoformat()


def text_cell(tmp_path: Path) -> Path:
    return csv_lines(tmp_path, iso, lambda row: "n.a." if row == 100 else str(row % 7))


def zones_in_files(tmp_path: Path) -> Path:
    write(tmp_path / "lake/part-0.parquet", table(zone="UTC"))
    return write(tmp_path / "lake/part-1.parquet", table(zone="Europe/Berlin"))


def zones_in_lines(tmp_path: Path) -> Path:
    return csv_lines(tmp_path, lambda row: iso(row) + ("Z" if row % 2 else "+02:00"), str)


def local_zone(tmp_path: Path) -> Path:
    return write(tmp_path / "lake/part-0.parquet", table(zone="Europe/Berlin"))


def no_files(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake"


def no_rows(tmp_path: Path) -> Path:
    return write(tmp_path / "lake/part-0.parquet", table().slice(0, 0))


def header_alone(tmp_path: Path) -> Path:
    (tmp_path / "lake.csv").write_text("item_id,timestamp,target\n")
    return tmp_path / "lake.csv"


BAD_TABLES: list[tuple[Callable[[Path], Path], int, list[str]]] = [
    (cut_file, 1, ["part-0.parquet", "damaged or cut short", "copy it again"]),
    (damaged_footer, 1, ["part-0.parquet", "damaged or cut short", "copy it again"]),
    (damaged_page, 1, ['part-0.parquet, row group 1, column "target"', "copy it again"]),
    (missing_column, 2, ['no column "target"', '"item_id", "timestamp", "valeu"', "--target"]),
    (text_target, 2, ['column "target"', "it is string; expected numbers", "convert it"]),
    (number_as_stamp, 2, ['column "timestamp"', "int64; expected time stamps", "convert it"]),
    (text_cell, 2, ['because of "n.a."', "lake.csv:102", "expected numbers"]),
    (zones_in_files, 1, ["part-1.parquet", "Europe/Berlin", "UTC", "write all in one zone"]),
    (zones_in_lines, 1, ["lake.csv:2", "lake.csv:3", "write all in one zone"]),
    (local_zone, 2, ["in the zone Europe/Berlin", "convert the column to UTC"]),
    (no_files, 2, ["lake: no Parquet, CSV or JSON lines file is there"]),
    (no_rows, 2, ["lake", "no rows", "add some, or name another table"]),
    (header_alone, 2, ["lake.csv", "no rows", "add some, or name another table"]),
]


@pytest.mark.parametrize(
    ("spoil", "code", "parts"), BAD_TABLES, ids=[bad[0].__name__ for bad in BAD_TABLES]
)
def test_a_table_that_cannot_be_used_is_told_before_anything_is_begun(
    spoil: Callable[[Path], Path],
    code: int,
    parts: list[str],
    run_headrace: Run,
    made: Made,
    tmp_path: Path,
) -> None:
    bad = spoil(tmp_path)
    out = tmp_path / "out.parquet"
    before = run_headrace("models", "list", "--json", env=made.environment).stdout

    # What lies within pages is found by who reads them: the items of a local training, see below.
    for words in every_command(bad, made, out)[int(spoil is damaged_page) :]:
        done = run_headrace(*words, env=made.environment)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stderr}"
        for part in parts:
            assert part in done.stderr, words
        lines = [line for line in done.stderr.splitlines() if not line.startswith("registry: ")]
        assert len(lines) == 1, done.stderr  # the error and no more

    assert not (tmp_path / "runs").exists()
    assert not out.exists()
    assert run_headrace("models", "list", "--json", env=made.environment).stdout == before


def test_a_table_that_changed_under_a_pipeline_fails_its_items_at_once(
    run_headrace: Run, tmp_path: Path
) -> None:
    """The pipeline's policy has retries; they are not for what lies in the input."""
    lake = good_lake(tmp_path)
    done = run_headrace(
        "forecast", "train", lake, "--model", "m", "--dir", "run", *LOCAL, "--target", "target"
    )
    assert done.returncode == 0, done.stderr
    (document,) = (tmp_path / "run").parent.glob("**/m-*.json")
    missing_column(tmp_path)

    again = run_headrace("flow", "run", document, "--dir", "second", timeout=25)

    assert again.returncode == 1
    assert "3× " in again.stderr and 'no column "target"' in again.stderr


# ---- one item among many ----


def duplicate(data: dict[str, list[Any]]) -> None:
    for column, value in (("item_id", "s1"), ("timestamp", data["timestamp"][5]), ("target", 1.0)):
        data[column].append(value)


def off_grid(data: dict[str, list[Any]]) -> None:
    data["timestamp"][HOURS + 5] += datetime.timedelta(minutes=17)


def only_nan(data: dict[str, list[Any]]) -> None:
    data["target"][HOURS : 2 * HOURS] = [float("nan")] * HOURS


def infinite(data: dict[str, list[Any]]) -> None:
    data["target"][HOURS + 5] = float("inf")


BAD_ITEMS: list[tuple[Callable[[dict[str, list[Any]]], None], list[str]]] = [
    (
        duplicate,
        [
            "two rows have the time stamp 2026-01-01 05:00:00",
            "--aggregate sum, mean or last (in Python aggregate=",
        ],
    ),
    (off_grid, ["2026-01-01 05:17:00 is off the grid", "2026-01-01 06:00:00", "round the stamps"]),
    (only_nan, [f"none of {HOURS} target values is observed", "take the item out"]),
    (infinite, ['"target" is infinite at 2026-01-01 05:00:00', "replace the value"]),
]


@pytest.fixture(params=BAD_ITEMS, ids=[bad[0].__name__ for bad in BAD_ITEMS])
def bad_item(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str]]:
    """A lake whose item s1 is not as it should be, and what is to be said of it."""
    spoil, parts = request.param
    data = columns()
    spoil(data)
    lake = write(tmp_path / "lake/part-0.parquet", table(data))
    return lake, ['item "s1"', *parts]


def items_of(run_headrace: Run, run: Path) -> dict[str, dict[str, Any]]:
    done = run_headrace("flow", "status", run, "--items", "--json")
    assert done.returncode == 0, done.stderr
    (each,) = [a for a in json.loads(done.stdout)["activities"] if a["path"] == "TrainEach"]
    return {item["key"]: item for item in each["item_list"]}


def test_what_workers_count_of_the_registry_is_in_the_numbers_of_the_run(
    run_headrace: Run, tmp_path: Path
) -> None:
    path = pipeline(tmp_path / "p.json", good_lake(tmp_path))

    done = run_headrace("flow", "run", path, "--dir", "run", "--slots", "2", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "run/metrics.json").read_text())["values"]
    assert kept["registry.versions"] == len(ITEMS) == len(names_of(run_headrace))
    assert kept["registry.commit_seconds"]["count"] >= 1
    assert kept["lake.rows"] == len(ITEMS) * HOURS
    assert kept["lake.read_bytes"] > 0
    trained = {kind: kept[f'forecast.series{{result="{kind}"}}'] for kind in ("ok", "fallback")}
    assert sum(trained.values()) == len(ITEMS)
    assert kept['forecast.series{result="failed"}'] == 0
    assert kept["forecast.train_seconds"]["count"] == len(ITEMS)


def test_a_missing_column_stops_hundreds_of_items_after_the_first_few(
    run_headrace: Run, tmp_path: Path
) -> None:
    names = [f"s{i}" for i in range(414)]
    lake = write(tmp_path / "lake/part-0.parquet", table(columns(names, 3)))
    path = pipeline(tmp_path / "p.json", lake, target="y")

    done = run_headrace("flow", "run", path, "--dir", "run", "--slots", "2", cwd=tmp_path)

    assert done.returncode == 1
    assert "no column" in done.stderr and '"y"' in done.stderr
    assert "the first 5 items to end all failed with this error" in done.stderr
    ended = Counter(item["status"] for item in items_of(run_headrace, tmp_path / "run").values())
    assert ended["Failed"] in (5, 6)
    assert ended["Failed"] + ended["Skipped"] == 414


def names_of(run_headrace: Run) -> list[str]:
    """One entry per registered version."""
    done = run_headrace("models", "list", "--json")
    assert done.returncode == 0, done.stderr
    return sorted(version["name"] for version in json.loads(done.stdout)["versions"])


def fails_alone_and_can_be_mended(
    lake: Path, parts: list[str], run_headrace: Run, run: Path
) -> None:
    done = run_headrace("forecast", "train", lake, "--model", "m", "--dir", run, *LOCAL, timeout=25)

    assert done.returncode == 1
    for part in parts:
        assert part in done.stderr
    items = items_of(run_headrace, run)
    assert {key: item["status"] for key, item in items.items()} == {
        "s0": "Succeeded",
        "s1": "Failed",
        "s2": "Succeeded",
    }
    assert f"headrace flow resume {run} --retry-failed" in done.stdout
    assert names_of(run_headrace) == ["m/s0", "m/s2"]
    assert set(pq.read_table(run / "forecasts.parquet")["item_id"].to_pylist()) == {"s0", "s2"}

    write(lake / "part-0.parquet", table())
    again = run_headrace("flow", "resume", run, "--retry-failed")

    assert again.returncode == 0, again.stderr
    assert names_of(run_headrace) == ["m/s0", "m/s1", "m/s2"]
    after = items_of(run_headrace, run)
    assert {item["status"] for item in after.values()} == {"Succeeded"}
    forecasts = pq.read_table(run / "forecasts.parquet")["item_id"].to_pylist()
    assert set(Counter(forecasts)) == set(ITEMS)


def test_a_bad_item_fails_alone_and_runs_again_once_it_is_mended(
    bad_item: tuple[Path, list[str]], run_headrace: Run, tmp_path: Path
) -> None:
    fails_alone_and_can_be_mended(*bad_item, run_headrace, tmp_path / "run")


def test_a_damaged_row_group_fails_its_items_alone(run_headrace: Run, tmp_path: Path) -> None:
    parts = ['part-0.parquet, row group 1, column "target"', "copy it again"]
    fails_alone_and_can_be_mended(damaged_page(tmp_path), parts, run_headrace, tmp_path / "run")


def test_a_bad_item_is_named_by_every_command_and_the_others_go_on(
    bad_item: tuple[Path, list[str]], run_headrace: Run, made: Made, tmp_path: Path
) -> None:
    lake, parts = bad_item
    out = tmp_path / "out.parquet"
    # Into a registry of its own: the global model is one that others must not find.
    own = {"HEADRACE_REGISTRY": str(tmp_path / "registry")}
    for words in every_command(lake, made, out)[1:]:
        environment = own if "train" in words else made.environment
        done = run_headrace(*words, env=environment)
        assert done.returncode == 1, f"{words}: {done.returncode}\n{done.stderr}"
        assert "failed: s1: " in done.stderr, words
        for part in parts:
            assert part in done.stderr, words

    assert names_of(run_headrace) == ["m"]
    assert set(pq.read_table(out)["item_id"].to_pylist()) == {"s0", "s2"}


def test_rows_of_one_stamp_can_be_resolved_as_the_message_says(
    run_headrace: Run, made: Made, tmp_path: Path
) -> None:
    data = columns()
    duplicate(data)
    lake = write(tmp_path / "lake/part-0.parquet", table(data))
    done = run_headrace(
        "forecast",
        "predict",
        lake,
        *("--model", "m", "--out", "out.parquet", "--aggregate", "mean"),
        env=made.environment,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.parquet", "pipe.jsonl"])
def test_a_pipe_is_no_table_and_is_not_waited_for(
    run_headrace: Run, tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / name)

    done = run_headrace("lake", "inspect", name, cwd=tmp_path, timeout=20)

    assert done.returncode == 2
    assert f"{name}: this is no regular file" in done.stderr


def test_when_every_item_fails_nothing_is_written(
    run_headrace: Run, made: Made, tmp_path: Path
) -> None:
    data = columns()
    data["target"] = [float("nan")] * len(data["target"])
    lake = write(tmp_path / "lake/part-0.parquet", table(data))
    done = run_headrace(
        "forecast", "predict", lake, "--model", "m", "--out", "out.csv", env=made.environment
    )
    assert done.returncode in {1, 2}
    assert 'item "s0": none of' in done.stderr
    assert "2 more items failed" in done.stderr
    assert "out.csv was not written" in done.stderr
    assert not (tmp_path / "out.csv").exists()
