# SPDX-License-Identifier: Apache-2.0
"""Our container against the reference reader, safetensors 0.8.0, in an environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace import registry

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "fuzz" / "corpus" / "safetensors"
sys.path.insert(0, str(ROOT / "tools"))
import safetensors_corpus  # noqa: E402


def run(python: Path, code: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [str(python), "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_corpus_is_what_its_script_writes() -> None:
    stored = {p.stem: p.read_bytes() for p in CORPUS.glob("*.safetensors")}
    assert stored == safetensors_corpus.FILES


def test_the_reference_reader_differs_only_in_what_we_call_strict(mlflow_python: Path) -> None:
    code = """
import json, pathlib, sys
from safetensors import deserialize
accepted = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    try:
        deserialize(path.read_bytes())
        accepted.append(path.stem)
    except Exception:
        pass
print(json.dumps(accepted))
"""
    accepted = set(json.loads(run(mlflow_python, code, CORPUS)))
    for name in safetensors_corpus.FILES:
        assert (name in accepted) == (not name.startswith("bad-")), name


def test_our_files_open_in_safetensors_and_theirs_in_ours(
    mlflow_python: Path, tmp_path: Path
) -> None:
    weights = {
        "b": np.arange(6, dtype="f4").reshape(2, 3),
        "a": np.array([1, 2], dtype="i8"),
        "h": np.array([0.5], dtype="f2"),
        "empty": np.zeros((0, 3), dtype="f4"),
    }
    r = registry.open(tmp_path / "registry")
    [artifact] = r.add("m", weights).artifacts
    ours = r.folder / "objects" / artifact["hash"][:2] / artifact["hash"]
    code = """
import sys
import numpy as np
from safetensors.numpy import load_file, save_file
weights = load_file(sys.argv[1])
for name in sorted(weights):
    print(name, weights[name].dtype, weights[name].shape, weights[name].ravel().tolist())
save_file({"x": np.arange(4, dtype="f8"), "y": np.array([True])}, sys.argv[2], {"note": "n"})
"""
    theirs = tmp_path / "theirs.safetensors"
    assert run(mlflow_python, code, ours, theirs).splitlines() == [
        "a int64 (2,) [1, 2]",
        "b float32 (2, 3) [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]",
        "empty float32 (0, 3) []",
        "h float16 (1,) [0.5]",
    ]
    model = registry.open_file(theirs)
    assert model.metadata == {"note": "n"}
    assert model.header == {}
    assert model.weights["x"].tolist() == [0, 1, 2, 3]
    assert model.weights["y"].tolist() == [True]
    assert (r.add("theirs", theirs).kind, r.load("theirs").weights["x"][3]) == ("weights", 3)


def test_the_printed_reader_reads_a_model_and_a_bundle_as_load_does(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "formats" / "model-file.md").read_text()
    [source] = re.findall(r"```python\n(import json.*?)```", page, re.S)
    assert len(source.strip().splitlines()) <= 25
    namespace: dict[str, object] = {}
    exec(source, namespace)
    load = namespace["load"]
    r = registry.open(tmp_path / "registry")
    [artifact] = r.add("m", {"w": np.arange(4, dtype="f4")}, kind="x").artifacts
    weights, header = load(r.folder / "objects" / artifact["hash"][:2] / artifact["hash"])
    assert header["kind"] == "x"
    assert weights["w"].tolist() == [0, 1, 2, 3]

    bundle = CORPUS / "ok-bundle.safetensors"
    weights, header = load(bundle, "b")
    model = registry.open_file(bundle)
    assert model.items() == ["a", "b"]
    assert header["scalars"] == ["scale"]
    assert weights["w"].shape == (4, 4)
    with pytest.raises(ValueError):
        load(bundle, "c")
