# SPDX-License-Identifier: Apache-2.0
"""`headrace models get --onnx`: the graphs that Python's `Model.to_onnx` gives, as files."""

from __future__ import annotations

from pathlib import Path

import small_lake
from headrace import forecast, registry


def test_networks_are_exported_as_onnx_files(tmp_path: Path, run_headrace, headrace_json) -> None:
    lake = small_lake.good_lake(tmp_path)
    train = ["forecast", "train", lake, "--global", *small_lake.FAST]
    headrace_json(*train, "--model", "one")
    headrace_json(*train, "--model", "two", "--members", 2)
    store = registry.open(tmp_path / "registry")

    told = headrace_json("models", "get", "one", "--onnx", "--out", "a")
    assert told == {"version": "one:1", "files": ["a/encoder.onnx", "a/decoder.onnx"]}
    files = [(tmp_path / path).read_bytes() for path in told["files"]]
    assert files == list(forecast._model(store.load("one")).to_onnx())

    done = run_headrace("models", "get", "one", "--onnx", "--out", "a")
    assert done.returncode == 1
    assert "a/encoder.onnx is there already" in done.stderr
    assert run_headrace("models", "get", "one", "--onnx", "--out", "a", "--force").returncode == 0

    headrace_json("models", "get", "two", "--onnx", "--out", "b")
    names = sorted(path.name for path in (tmp_path / "b").iterdir())
    assert names == ["decoder-0.onnx", "decoder-1.onnx", "encoder-0.onnx", "encoder-1.onnx"]
    second = (tmp_path / "b" / "encoder-1.onnx").read_bytes()
    assert second == forecast._model(store.load("two")).to_onnx(1)[0]


def test_a_method_without_a_network_says_so(tmp_path: Path, run_headrace) -> None:
    lake = small_lake.write(
        tmp_path / "lake/a.parquet", small_lake.table(small_lake.columns(["s0"], 8))
    )
    pipeline = small_lake.pipeline(tmp_path / "p.json", lake)
    run_headrace("flow", "run", pipeline, "--dir", "run")
    done = run_headrace("models", "get", "m/s0", "--onnx", "--out", "a")
    assert done.returncode == 2
    assert "which has no network to export" in done.stderr, done.stderr
    assert not (tmp_path / "a").exists()
