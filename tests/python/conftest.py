# SPDX-License-Identifier: Apache-2.0
"""What all Python tests share: the checkout, the binary and its environment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import _cli

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]

# What a test started and may leave behind when it fails: `end_started` kills it.
STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def end_started() -> Iterator[None]:
    """Kill what is left in `STARTED` at the end of each test, with its workers."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def source_root() -> Path:
    """Root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def headrace_binary() -> Path:
    """The built binary; a checkout without it cannot be tested."""
    path = _cli.binary()
    assert path.exists(), f"{path} is not there; run `make build`"
    return path


def _python_of(name: str) -> Path:
    path = ROOT / name / "bin" / "python"
    if not path.exists():
        pytest.skip(f"{name} is not there; `make test` installs it")
    return path


@pytest.fixture(scope="session")
def mlflow_python() -> Path:
    """Python of the environment with the real MLflow (requirements-mlflow.txt)."""
    return _python_of(".venv-mlflow")


@pytest.fixture(scope="session")
def reference_python() -> Path:
    """Python of the environment with torch and GluonTS (requirements-reference.txt)."""
    return _python_of(".venv-reference")


@pytest.fixture(scope="session")
def old_torch_python() -> Path:
    """Python of the environment with the oldest torch that is served (requirements-torch24.txt)."""
    path = ROOT / ".venv-torch24" / "bin" / "python"
    if not path.exists():
        pytest.skip(".venv-torch24 is not there; `make .venv-torch24/.done` installs it (5 GB)")
    return path


@pytest.fixture
def run_headrace(headrace_binary: Path, tmp_path: Path) -> Run:
    """Run the binary with a registry and a home of its own; answers the finished process."""

    def run(
        *words: str | Path,
        cwd: Path | None = None,
        timeout: float = 120.0,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        variables = {
            **os.environ,
            "HEADRACE_REGISTRY": str(tmp_path / "registry"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            **(env or {}),
        }
        return subprocess.run(
            [str(headrace_binary), *map(str, words)],
            cwd=cwd or tmp_path,
            env=variables,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def headrace_json(run_headrace: Run) -> Callable[..., object]:
    """Run with --json, require success, answer the parsed value."""

    def run(*words: str | Path, **options: object) -> object:
        done = run_headrace(*words, "--json", **options)
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    return run


def running_with(mark: str) -> list[int]:
    """Processes that have `mark` in their environment; zombies have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for(what: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    while not ready():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)
