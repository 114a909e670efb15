# SPDX-License-Identifier: Apache-2.0
"""Write lake/ and test.parquet out of the published wide CSV files; needs pyarrow."""

import csv
import datetime
import gzip
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).resolve().parent
START = datetime.datetime(2015, 7, 1)
FILES = 6
GROUPS_PER_FILE = 3
SCHEMA = pa.schema(
    [("item_id", pa.string()), ("timestamp", pa.timestamp("us")), ("target", pa.float64())]
)


def read_wide(name: str) -> dict[str, list[float]]:
    """Read one published file: a header, then per row the id and its values, short rows padded."""
    with gzip.open(FOLDER / name, "rt", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return {row[0]: [float(cell) for cell in row[1:] if cell] for row in rows}


def long_table(items: list[str], values: dict[str, list[float]], skip: dict[str, int]) -> pa.Table:
    """Long form of `items`; the first stamp of an item is START plus `skip` hours."""
    ids, stamps, targets = [], [], []
    for item in items:
        first = skip.get(item, 0)
        ids += [item] * len(values[item])
        stamps += [START + datetime.timedelta(hours=first + t) for t in range(len(values[item]))]
        targets += values[item]
    return pa.table([ids, stamps, targets], schema=SCHEMA)


def write(path: pathlib.Path, tables: list[pa.Table]) -> None:
    """One row group per table."""
    with pq.ParquetWriter(
        path, SCHEMA, compression="zstd", use_dictionary=["item_id", "target"]
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=table.num_rows)


def main() -> None:
    """Sort by item in byte order, so that the statistics of the row groups do not overlap."""
    train = read_wide("Hourly-train.csv.gz")
    test = read_wide("Hourly-test.csv.gz")
    items = sorted(train)
    per_group = -(-len(items) // (FILES * GROUPS_PER_FILE))
    groups = [items[i : i + per_group] for i in range(0, len(items), per_group)]
    (FOLDER / "lake").mkdir(exist_ok=True)
    for index in range(FILES):
        chosen = groups[index * GROUPS_PER_FILE : (index + 1) * GROUPS_PER_FILE]
        tables = [long_table(group, train, {}) for group in chosen]
        write(FOLDER / "lake" / f"part-{index}.parquet", tables)
    lengths = {item: len(values) for item, values in train.items()}
    write(FOLDER / "test.parquet", [long_table(items, test, lengths)])


if __name__ == "__main__":
    main()
