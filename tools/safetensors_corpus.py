# SPDX-License-Identifier: Apache-2.0
"""Write fuzz/corpus/safetensors: one file per rule of the container, named by who accepts it.

`ok-` both readers accept, `bad-` both refuse, `strict-` safetensors 0.8.0 accepts and we refuse.
Two tests read the same files: model_file_test.cc with our reader, test_safetensors.py with theirs.
Usage: python3 tools/safetensors_corpus.py [FOLDER]
"""

import json
import struct
import sys
from pathlib import Path


def container(head: str | bytes | dict, data: bytes = b"", length: int | None = None) -> bytes:
    text = (
        head
        if isinstance(head, bytes)
        else (head if isinstance(head, str) else json.dumps(head)).encode()
    )
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(begin: int, end: int, shape: list[int], dtype: str = "F32", **more: object) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


W = tensor(0, 8, [2])
D8 = bytes(range(8))
MODEL = {"headrace.format": "model/1", "headrace.min_reader": "1"}
HEADER = json.dumps({"kind": "deepar", "parameters": [{"name": "w", "shape": [2]}]})


def bundle(count: int = 2, **changes: object) -> bytes:
    """A bundle of `count` items with 16 weights each; keys "a", "b" and so on."""
    parts = {
        "weights": ("F32", [count, 16], b"\0" * 64 * count),
        "item.scalars": ("F64", [count, 1], b"\0" * 8 * count),
        "item.metrics": ("F64", [count, 0], b""),
        "item.hash": ("U64", [count], struct.pack(f"<{count}Q", *range(count))),
        "item.checksum": ("U64", [count], b"\0" * 8 * count),
        "item.key_offsets": ("U64", [count + 1], struct.pack(f"<{count + 1}Q", *range(count + 1))),
        "item.slot": ("U32", [count], struct.pack(f"<{count}I", *range(count))),
        "item.keys": ("U8", [count], b"abcdefgh"[:count]),
    }
    parts.update(changes)  # type: ignore[arg-type]
    header = {
        "kind": "deepar",
        "scalars": ["scale"],
        "metrics": [],
        "parameters": [{"name": "w", "shape": [4, 4], "offset": 0}],
    }
    head: dict = {
        "__metadata__": {
            "headrace.format": "bundle/1",
            "headrace.min_reader": "1",
            "headrace.header": json.dumps(header),
        }
    }
    data = b""
    for name, (dtype, shape, content) in parts.items():
        head[name] = tensor(len(data), len(data) + len(content), shape, dtype)
        data += content
    text = json.dumps(head)
    return container(text + " " * (-(8 + len(text)) % 64), data)


FILES: dict[str, bytes] = {
    "ok-one": container({"w": W}, D8),
    "ok-none": container({}),
    "ok-padded": container(json.dumps({"w": W}) + "   ", D8),
    "ok-metadata": container({"__metadata__": {"a": "b"}, "w": W}, D8),
    "ok-two-unordered": container({"b": tensor(4, 8, [1]), "a": tensor(0, 4, [1])}, D8),
    "ok-zero-size": container({"e": tensor(0, 0, [0, 5]), "w": W}, D8),
    "ok-scalar": container({"s": tensor(0, 4, [])}, D8[:4]),
    "ok-odd-name": container({"../../x": W}, D8),
    "ok-unknown-field": container({"w": {**W, "note": {"deep": [1, "]}"]}}}, D8),
    "ok-escaped-name": container('{"\\u0077\\"": ' + json.dumps(W) + "}", D8),
    "ok-fp8": container({"w": tensor(0, 8, [8], "F8_E4M3")}, D8),
    "ok-f4": container({"w": tensor(0, 8, [16], "F4")}, D8),
    "ok-model": container({"__metadata__": {**MODEL, "headrace.header": HEADER}, "w": W}, D8),
    "ok-bundle": bundle(),
    "bad-empty": b"",
    "bad-short": b"\x02\0\0",
    "bad-length-beyond": container({"w": W}, D8, 1000),
    "bad-length-huge": container({"w": W}, D8, 2**63),
    "bad-length-over-limit": container({"w": W}, D8, 100_000_001),
    "bad-not-json": container("{w}", b""),
    "bad-not-object": container("[]"),
    "bad-after-object": container("{} {}"),
    "bad-hole": container({"a": tensor(0, 4, [1]), "b": tensor(8, 12, [1])}, b"\0" * 12),
    "bad-overlap": container({"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, b"\0" * 12),
    "bad-same-range": container({"a": W, "b": W}, D8),
    "bad-rest": container({"w": W}, D8 + b"x"),
    "bad-truncated": container({"w": W}, D8[:7]),
    "bad-begin-after-end": container({"w": tensor(8, 0, [2])}, D8),
    "bad-shape": container({"w": tensor(0, 8, [3])}, D8),
    "bad-shape-overflow": container({"w": tensor(0, 8, [2**32, 2**32, 2])}, D8),
    "bad-shape-negative": container({"w": tensor(0, 8, [-2])}, D8),
    "bad-shape-real": container('{"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}', D8),
    "bad-offsets-three": container('{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}', D8),
    "bad-dtype": container({"w": tensor(0, 8, [2], "F33")}, D8),
    "bad-f4-odd": container({"w": tensor(0, 8, [15], "F4")}, D8),
    "bad-missing-field": container('{"w":{"dtype":"F32","shape":[2]}}', D8),
    "bad-double-field": container(
        '{"w":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', D8
    ),
    "bad-metadata-number": container({"__metadata__": {"a": 1}, "w": W}, D8),
    "bad-metadata-nested": container({"__metadata__": {"a": {"b": "c"}}, "w": W}, D8),
    "bad-utf8": container(b'{"\xff":' + json.dumps(W).encode() + b"}", D8),
    "strict-blank-before": container(" " + json.dumps({"w": W}), D8),
    "strict-duplicate-name": container('{"w":' + json.dumps(W) + ',"w":' + json.dumps(W) + "}", D8),
    "strict-deep-field": container({"w": {**W, "note": json.loads("[" * 16 + "]" * 16)}}, D8),
    # What the container allows and a headrace file does not.
    "strict-model-newer": container(
        {"__metadata__": {**MODEL, "headrace.format": "model/2"}, "w": W}, D8
    ),
    "strict-model-no-header": container({"__metadata__": MODEL, "w": W}, D8),
    "strict-model-no-kind": container(
        {"__metadata__": {**MODEL, "headrace.header": "{}"}, "w": W}, D8
    ),
    "strict-model-lacks-parameter": container(
        {"__metadata__": {**MODEL, "headrace.header": HEADER}, "v": W}, D8
    ),
    "strict-model-nan": container(
        {"__metadata__": {**MODEL, "headrace.header": HEADER}, "w": W},
        struct.pack("<2f", 1.0, float("nan")),
    ),
    "strict-model-checksum": container(
        {
            "__metadata__": {**MODEL, "headrace.header": HEADER, "headrace.checksum": "0" * 32},
            "w": W,
        },
        D8,
    ),
    "strict-bundle-slot": bundle(**{"item.slot": ("U32", [2], struct.pack("<2I", 0, 2))}),
    "strict-bundle-offsets": bundle(
        **{"item.key_offsets": ("U64", [3], struct.pack("<3Q", 0, 9, 2))}
    ),
    "strict-bundle-hash-order": bundle(**{"item.hash": ("U64", [2], struct.pack("<2Q", 5, 1))}),
    "strict-bundle-shape": bundle(**{"item.scalars": ("F64", [2, 2], b"\0" * 32)}),
    "strict-bundle-no-weights": bundle(**{"weights": ("U8", [128], b"\0" * 128)}),
}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "fuzz/corpus/safetensors")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in FILES.items():
        (folder / f"{name}.safetensors").write_bytes(content)


if __name__ == "__main__":
    main()
