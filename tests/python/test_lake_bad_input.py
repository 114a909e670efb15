# SPDX-License-Identifier: Apache-2.0
"""`headrace lake head` and `inspect` on what cannot be read: exit code and message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import small_lake
from conftest import Run

BOTH = pytest.mark.parametrize("verb", ["head", "inspect"])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return small_lake.good_lake(tmp_path)


@pytest.fixture
def good_bytes(lake: Path) -> bytes:
    return (lake / "part-0.parquet").read_bytes()


def assert_told(run_headrace: Run, words: list[str | Path], code: int, *parts: str) -> None:
    """Nothing but one message on stderr; with --json the same as one value on stdout."""
    done = run_headrace("lake", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("headrace: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr
    told = run_headrace("lake", *words, "--json")
    assert (told.returncode, told.stderr) == (code, "")
    assert f"headrace: {json.loads(told.stdout)['error']['message']}\n" == done.stderr


@BOTH
def test_a_path_with_nothing_there(verb: str, tmp_path: Path, run_headrace: Run) -> None:
    path = tmp_path / "no-such-lake"
    assert_told(run_headrace, [verb, path], 2, f"{path}: there is no such file or folder")
    pattern = tmp_path / "no-such*.parquet"
    assert_told(run_headrace, [verb, pattern], 2, f"{pattern}: no Parquet, CSV or JSON lines file")


@BOTH
def test_a_folder_without_a_table(verb: str, tmp_path: Path, run_headrace: Run) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert_told(run_headrace, [verb, folder], 2, f"{folder}: no Parquet, CSV", "found: nothing")
    (folder / "notes.txt").write_text("not yet")
    assert_told(run_headrace, [verb, folder], 2, "found: notes.txt")
    assert_told(run_headrace, [verb, folder / "notes.txt"], 1, "or name the format")


@BOTH
@pytest.mark.parametrize("kept", ["half", "all but a byte", "head", "nothing"])
def test_a_parquet_file_that_was_cut_short(
    verb: str, kept: str, lake: Path, good_bytes: bytes, run_headrace: Run
) -> None:
    size = {"half": len(good_bytes) // 2, "all but a byte": -1, "head": 6, "nothing": 0}[kept]
    second = lake / "part-1.parquet"  # beside a file that is whole
    second.write_bytes(good_bytes[:size])
    advice = "damaged or cut short: write or copy it again, or take it out of the table"
    assert_told(run_headrace, [verb, lake], 1, f"{second}: ", advice)


def test_the_end_of_a_parquet_file_alone(lake: Path, good_bytes: bytes, run_headrace: Run) -> None:
    # Its footer is whole, so that it can be inspected; its pages are not there.
    path = lake / "part-0.parquet"
    footer = int.from_bytes(good_bytes[-8:-4], "little") + 8
    path.write_bytes(b"PAR1" + good_bytes[-footer:])
    assert_told(run_headrace, ["head", lake], 1, f"{path}, row group 0: ", "cut short")


@BOTH
@pytest.mark.parametrize("text", ["a", "item_id,timestamp,target\na,2026-01-01,1\n" * 9])
def test_a_text_file_called_parquet(verb: str, text: str, lake: Path, run_headrace: Run) -> None:
    path = lake / "part-1.parquet"
    path.write_text(text)
    told = f"{path}: it does not begin with PAR1 and so is no Parquet file; name its format"
    assert_told(run_headrace, [verb, path], 1, told)
    assert_told(run_headrace, [verb, lake], 1, told)
    assert run_headrace("lake", verb, path, "--format", "csv").returncode in (0, 1)


def test_columns_that_are_not_there(lake: Path, run_headrace: Run) -> None:
    found = 'there is no column "price"; found: "item_id", "timestamp", "target"'
    assert_told(run_headrace, ["head", lake, "--columns", "price"], 2, f"{lake}: {found}")
    words = ["head", lake, "--columns", "target", "--columns", "price"]
    assert_told(run_headrace, words, 2, found)
    where = ["head", lake, "--where", "price > 1"]
    assert_told(run_headrace, where, 2, f"{lake}: condition: {found}")


def test_conditions_and_counts_that_make_no_sense(lake: Path, run_headrace: Run) -> None:
    words = ["head", lake, "--where"]
    assert_told(run_headrace, [*words, "target ~ 1"], 2, 'condition "target ~ 1": expected COLUMN')
    told = 'condition on "target": "much" does not fit a column of type float64'
    assert_told(run_headrace, [*words, "target == much"], 2, told)
    told = '--rows takes a whole number of at least 0, not "-3"'
    assert_told(run_headrace, ["head", lake, "-n", "-3"], 2, told)
    told = '--zone is one of UTC, not "CET"'
    assert_told(run_headrace, ["head", lake, "--zone", "CET"], 2, told)


def test_what_names_of_tables_may_begin_with_is_told(run_headrace: Run) -> None:
    assert_told(run_headrace, ["inspect", "ftp://host/table"], 1, "s3://, gs://, abfss:// or hdfs")


def test_an_object_store_that_does_not_answer_is_told_and_left_cleanly(run_headrace: Run) -> None:
    """Arrow's S3 is loaded for it; nothing listens there."""
    done = run_headrace(
        "lake",
        "inspect",
        "s3://lake/t",
        env={
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
            "AWS_MAX_ATTEMPTS": "1",
        },
    )
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: lake/t: ")
    assert "NETWORK_CONNECTION" in done.stderr
    assert "FinalizeS3" not in done.stderr
