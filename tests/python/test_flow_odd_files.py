# SPDX-License-Identifier: Apache-2.0
"""Pipes, sockets, devices and folders where a run keeps files: no hang, and an error names it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Run
from test_flow_findings import custom, document

SOON = 10.0


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's whole path may be too long
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS: dict[str, Callable[[Path], None]] = {
    "a pipe": make_pipe,
    "a socket": make_socket,
    "a device": make_device,
    "a folder": Path.mkdir,
}
LOOKS = (["list"], ["status", "latest"], ["logs", "latest"], ["report", "latest"])


@pytest.fixture
def stopped_run(run_headrace: Run, tmp_path: Path) -> Path:
    """A run with a secure parameter that failed; its folder."""
    whole = document(
        custom("exit 1", policy={"secureOutput": True}),
        parameters={"k": {"type": "SecureString", "defaultValue": "zz1secret"}},
    )
    (tmp_path / "p.json").write_text(json.dumps(whole))
    done = run_headrace("flow", "run", "p.json", "--dir", "runs/one", cwd=tmp_path)
    assert done.returncode == 1
    return tmp_path / "runs/one"


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", ["journal", "summary.json", "secrets.json", "secrets.outputs"])
def test_no_command_hangs_on_what_is_no_file(
    run_headrace: Run, tmp_path: Path, stopped_run: Path, name: str, kind: str
) -> None:
    (stopped_run / name).unlink(missing_ok=True)
    KINDS[kind](stopped_run / name)

    for words in (*LOOKS, ["resume", "latest", "--retry-failed"], ["cancel", "latest"]):
        done = run_headrace("flow", *words, cwd=tmp_path, timeout=SOON)
        assert done.returncode in (0, 1, 2, 3), f"{words}: {done.stderr}"
        said = done.stdout + done.stderr
        if name == "journal" and words[0] not in ("list", "cancel"):
            assert done.returncode != 0
            assert f"journal is {kind}" in said, words
        if name == "secrets.json" and words[0] == "resume":
            assert done.returncode != 0
            assert f"secrets.json is {kind}" in said


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", ["lock", "cancel", "metrics.json", "registries"])
def test_nor_on_the_files_of_an_engine(
    run_headrace: Run, tmp_path: Path, stopped_run: Path, name: str, kind: str
) -> None:
    place = stopped_run / name
    place.unlink(missing_ok=True)
    KINDS[kind](place)

    for words in (*LOOKS, ["resume", "latest", "--retry-failed"], ["cancel", "latest"]):
        done = run_headrace("flow", *words, cwd=tmp_path, timeout=90)
        assert done.returncode in (0, 1, 2, 3, 5), f"{words}: {done.stderr}"


def test_a_log_that_is_a_pipe_is_named(
    run_headrace: Run, tmp_path: Path, stopped_run: Path
) -> None:
    log = stopped_run / "activities/other.1.log"
    log.parent.mkdir(exist_ok=True)
    os.mkfifo(log)

    done = run_headrace("flow", "logs", "latest", cwd=tmp_path, timeout=SOON)

    assert done.returncode != 0
    assert "other.1.log is a pipe" in done.stderr


@pytest.mark.parametrize("secrets", ["", '{"k": "zz1', None])
def test_a_torn_or_missing_secrets_file_stops_the_resume_alone(
    run_headrace: Run, tmp_path: Path, stopped_run: Path, secrets: str | None
) -> None:
    kept = stopped_run / "secrets.json"
    whole = kept.read_text()
    kept.unlink()
    if secrets is not None:
        kept.write_text(secrets)
    (stopped_run / "summary.json").unlink()

    for words in LOOKS:
        done = run_headrace("flow", *words, cwd=tmp_path)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        assert "zz1secret" not in done.stdout + done.stderr
    done = run_headrace("flow", "list", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["runs"][0]["state"] == "failed"

    done = run_headrace("flow", "resume", "latest", "--retry-failed", cwd=tmp_path)
    assert done.returncode == 1  # what every damaged file comes to
    assert "secrets.json" in done.stderr
    assert "restore it" in done.stderr

    kept.write_text(whole)
    done = run_headrace("flow", "resume", "latest", "--retry-failed", cwd=tmp_path)
    assert done.returncode == 1, done.stderr


def test_a_pipeline_and_its_parameters_may_come_through_pipes(
    headrace_binary: Path, tmp_path: Path
) -> None:
    whole = document(custom("exit 0"), parameters={"n": {"type": "Int"}})
    (tmp_path / "p.json").write_text(json.dumps(whole))

    done = subprocess.run(
        ["bash", "-c", '"$0" flow run <(cat p.json) -P <(echo \'{"n": 1}\')', headrace_binary],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_what_a_command_was_given_does_not_stay_when_its_folder_cannot_be_made(
    headrace_binary: Path, tmp_path: Path
) -> None:
    """A limit on the size of files stands for a disk that is full."""
    long = "@concat(pipeline().parameters.k, join(range(0, 400000), ','))"
    given = custom("exit 0")
    given["typeProperties"]["extendedProperties"] = {"long": long}
    whole = document(given, parameters={"k": {"type": "SecureString", "defaultValue": "zz1secret"}})
    (tmp_path / "p.json").write_text(json.dumps(whole))

    done = subprocess.run(
        [
            "bash",
            "-c",
            "trap '' XFSZ; ulimit -f 1024; exec \"$0\" flow run p.json --dir run",
            headrace_binary,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert "activity.json" in done.stderr
    left = [path for path in (tmp_path / "run").rglob("*") if path.name == "activity.json"]
    assert left == []
