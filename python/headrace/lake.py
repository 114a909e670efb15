# SPDX-License-Identifier: Apache-2.0
"""Tables in a data lake: Parquet, CSV and GluonTS JSON lines, read natively.

Rows leave as Arrow streams, so pyarrow, pandas, polars and DuckDB take them as they are; anything
with ``__arrow_c_stream__`` is taken in return.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace._core import native

__all__ = ["Field", "File", "Rows", "Stream", "Table", "write_csv", "write_parquet"]

Condition = tuple[str, str, Any]
"""(column, operator, value): operators are == < <= > >= and "in" with several values."""


@dataclass(frozen=True)
class Field:
    """One column of a table."""

    name: str
    type: str
    """int64, float64, string, timestamp, date, boolean, floats, null or unsupported."""
    zone: str
    """Time zone of a timestamp; empty for local time and other types."""
    file_type: str
    """The type in the file's own words."""
    partition: bool
    """The value comes from the folder's name."""


@dataclass(frozen=True)
class File:
    """One file of a table."""

    name: str
    bytes: int
    rows: int
    row_groups: int
    written_by: str


def _fields(schema: Iterable[tuple[str, str, str, str, bool]]) -> list[Field]:
    return [Field(*entry) for entry in schema]


class Rows:
    """Rows in memory; ``pyarrow.table(rows)`` or ``polars.from_arrow(rows)`` takes them."""

    def __init__(self, rows: object) -> None:
        """Not to be called: ``Table.read`` makes them."""
        self._native: Any = rows

    def __len__(self) -> int:
        """Count the rows."""
        return int(self._native.__len__())

    @property
    def schema(self) -> list[Field]:
        """The columns."""
        return _fields(self._native.schema())

    @property
    def stats(self) -> dict[str, int]:
        """What the read cost: bytes, row groups, rows, files."""
        return dict(self._native.stats())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give an Arrow stream of the rows, as often as asked."""
        return self._native.stream()


class Stream:
    """A stream of batches with bounded memory; it can be taken once."""

    def __init__(self, stream: object) -> None:
        """Not to be called: ``Table.scan`` makes it."""
        self._native: Any = stream

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the Arrow stream; a second call raises InvalidArgument."""
        return self._native.stream()


class Table:
    """A file, a glob, a folder or a hive-partitioned folder.

    >>> table = Table("examples/m4_hourly/lake")  # doctest: +SKIP
    >>> table.read(columns=["target"], where=[("item_id", "==", "H1")])  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        format: str = "automatic",
        types: Mapping[str, str] | None = None,
        zone: str = "",
        allow_missing_columns: bool = False,
    ) -> None:
        """Open it: list its files and read their footers.

        Args:
            url: path, ``file://`` or another URL that Arrow knows; * ? [..] ** choose files.
            format: automatic (by the names' endings), parquet, csv, wide_csv or json_lines.
            types: types of CSV and partition columns by name; others are found from the values.
            zone: empty, or "UTC" to take time stamps of different zones as instants.
            allow_missing_columns: read a column that a file lacks as null.

        Raises:
            NotFound: nothing is there. Corrupt: a damaged file. Mismatch: files that differ.
        """
        self._native = native.LakeTable.open(
            os.fspath(url), format, dict(types or {}), zone, allow_missing_columns
        )

    @property
    def url(self) -> str:
        """The name it was opened by."""
        return str(self._native.url())

    @property
    def format(self) -> str:
        """The format of its files: parquet, csv, wide_csv or json_lines."""
        return str(self._native.format())

    @property
    def schema(self) -> list[Field]:
        """The columns, partition columns included."""
        return _fields(self._native.schema())

    @property
    def files(self) -> list[File]:
        """The files, in the order in which they are read."""
        return [File(*entry) for entry in self._native.files()]

    @property
    def sorted_by(self) -> list[str]:
        """Columns by which the row groups ascend."""
        return list(self._native.sorted_by())

    @property
    def digest(self) -> str:
        """BLAKE2b-256 of the files' names, sizes and contents: the same for a copy."""
        return str(self._native.digest())

    def __len__(self) -> int:
        """Count the rows."""
        return int(self._native.rows())

    def read(
        self,
        columns: Sequence[str] = (),
        where: Sequence[Condition] = (),
        rows_max: int = -1,
    ) -> Rows:
        """Read rows into memory.

        Args:
            columns: their names, in the order wanted; empty for all readable ones.
            where: conditions that must all hold; row groups that cannot match are not read.
            rows_max: stop after so many rows; -1 for all.

        Raises:
            NotFound: no such column (lists those there are). Unsupported: a nested type.
        """
        return Rows(self._native.read(list(columns), [tuple(c) for c in where], rows_max))

    def scan(
        self,
        columns: Sequence[str] = (),
        where: Sequence[Condition] = (),
        rows_max: int = -1,
        batch_rows: int = 65536,
    ) -> Stream:
        """Read rows as a stream of batches of at most ``batch_rows``, with bounded memory."""
        return Stream(
            self._native.scan(list(columns), [tuple(c) for c in where], rows_max, batch_rows)
        )

    def distinct(self, column: str) -> dict[Any, int]:
        """Count how often each value of a column occurs, null as None.

        Time stamps are microseconds and dates days since 1970. Folder names and statistics
        are used where they suffice.
        """
        return dict(self._native.distinct(column))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give an Arrow stream of all readable columns."""
        return self.scan().__arrow_c_stream__()


def write_parquet(
    path: str | os.PathLike[str],
    table: object,
    *,
    compression: str = "zstd",
    row_group_rows: int = 1 << 20,
    group_by: str = "",
) -> None:
    """Write a table as one Parquet file, whole or not at all.

    Args:
        path: local file; it is replaced when the new one is complete.
        table: anything with ``__arrow_c_stream__``: a pandas or polars frame, a pyarrow table.
        compression: none, snappy, zstd, gzip or lz4.
        row_group_rows: at most so many rows in a row group.
        group_by: begin a row group at each new value of this column, so that one item of a sorted
            table is found without reading its neighbours.
    """
    native.lake_write_parquet(os.fspath(path), table, compression, row_group_rows, group_by)


def write_csv(path: str | os.PathLike[str], table: object) -> None:
    """Write a table as CSV, packed when the name ends in .gz; whole or not at all."""
    native.lake_write_csv(os.fspath(path), table)
