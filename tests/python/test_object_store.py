# SPDX-License-Identifier: Apache-2.0
"""Tables on an object store: what a run asks of it, counted by a server that speaks as much S3."""

from __future__ import annotations

import http.server
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import small_lake

BUCKET = "bucket"
ITEMS = [f"s{k}" for k in range(8)]
FILES = 3


class Store(http.server.ThreadingHTTPServer):
    """Files below `folder` as the objects of one bucket; counts requests by kind."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.folder = folder
        self.asked: Counter[str] = Counter()

    def url(self, key: str) -> str:
        options = f"endpoint_override=127.0.0.1:{self.server_port}&scheme=http&region=eu-central-1"
        return f"s3://{BUCKET}/{key}?{options}"


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, code: int, body: bytes = b"", length: int | None = None, **heads: str) -> None:
        self.send_response(code)
        for name, value in heads.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def path_of(self) -> Path:
        key = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        return self.server.folder / key.removeprefix(f"/{BUCKET}").strip("/")

    def do_HEAD(self) -> None:
        self.server.asked["head"] += 1
        path = self.path_of()
        if path.is_file():
            self.answer(200, length=path.stat().st_size, ETag='"1"')
        else:
            self.answer(404)

    def do_GET(self) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        if "list-type" in query:
            self.list_objects(query.get("prefix", ""))
            return
        self.server.asked["get"] += 1
        path = self.path_of()
        if not path.is_file():
            self.answer(404)
            return
        data = path.read_bytes()
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        end = min(int(last or len(data) - 1), len(data) - 1)
        place = f"bytes {first}-{end}/{len(data)}"
        self.answer(206, data[int(first) : end + 1], Content_Range=place, ETag='"1"')

    def list_objects(self, prefix: str) -> None:
        self.server.asked["list"] += 1
        found = [path for path in sorted(self.server.folder.rglob("*")) if path.is_file()]
        keys = {str(path.relative_to(self.server.folder)): path for path in found}
        rows = "".join(
            f"<Contents><Key>{key}</Key><Size>{path.stat().st_size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, path in keys.items()
            if key.startswith(prefix)
        )
        body = (
            '<?xml version="1.0"?><ListBucketResult>'
            f"<Name>{BUCKET}</Name><Prefix>{prefix}</Prefix><IsTruncated>false</IsTruncated>"
            f"<KeyCount>{rows.count('<Key>')}</KeyCount>"
            f"{rows}</ListBucketResult>"
        )
        self.answer(200, body.encode(), Content_Type="application/xml")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / "objects"
    folder.mkdir()
    step = -(-len(ITEMS) // FILES)
    for k in range(FILES):
        rows = small_lake.columns(ITEMS[k * step : (k + 1) * step])
        small_lake.write(folder / "lake" / f"part-{k}.parquet", small_lake.table(rows))
    server = Store(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def test_a_table_is_listed_once_by_each_worker_not_once_per_item(
    store: Store, tmp_path: Path, run_headrace
) -> None:
    own = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "1"}
    asked: dict[int, Counter[str]] = {}
    for count in 2, len(ITEMS):
        path = small_lake.pipeline(
            tmp_path / f"{count}.json", store.url("lake"), model=f"m{count}", choose=False
        )
        document = path.read_text().replace(
            "@activity('Items').output.items", f"@take(activity('Items').output.items, {count})"
        )
        path.write_text(document)
        store.asked.clear()
        words = ["flow", "run", path, "--dir", tmp_path / f"run-{count}", "--slots", 1]
        done = run_headrace(*words, env=own)
        assert done.returncode == 0, done.stdout + done.stderr
        asked[count] = Counter(store.asked)
    assert asked[2]["list"] > 0
    assert asked[len(ITEMS)]["list"] == asked[2]["list"], asked
    # Each item's own row group is read, and no footer again.
    more = asked[len(ITEMS)]["get"] - asked[2]["get"]
    assert more <= 4 * (len(ITEMS) - 2), asked
    assert asked[len(ITEMS)]["head"] - asked[2]["head"] <= 2 * (len(ITEMS) - 2), asked
