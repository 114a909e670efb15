# SPDX-License-Identifier: Apache-2.0
"""`make demo` stopped by Ctrl-C, and again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from conftest import ROOT
from test_flow_cli import wait_for


def interrupted_demo(tmp_path: Path, ctrl_c: bool) -> tuple[int, str]:
    """Start the demo in a process group of its own; once it trains, press Ctrl-C, or do as make
    does on SIGTERM: hand it to the script alone."""
    demo = subprocess.Popen(
        [str(ROOT / "tools/demo.sh")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DEMO_DIR": str(tmp_path / "a demo")},
        start_new_session=True,
    )
    try:
        before = sum(len(file.read_bytes()) for file in tmp_path.rglob("journal"))
        wait_for(
            lambda: (
                sum(len(file.read_bytes()) for file in tmp_path.rglob("journal")) > before + 20
                and any(tmp_path.rglob("workers/1.log"))
            )
        )
        if ctrl_c:
            os.killpg(demo.pid, signal.SIGINT)
        else:
            demo.send_signal(signal.SIGTERM)
        out, _ = demo.communicate(timeout=60)
        return demo.returncode, out
    finally:  # of a test that fails, what it started must not train on
        with contextlib.suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
        demo.wait()


def test_a_stopped_demo_says_how_to_go_on_and_goes_on(tmp_path: Path) -> None:
    code, out = interrupted_demo(tmp_path, ctrl_c=True)
    assert code == 130, out
    folder = str(tmp_path / "a demo").replace(" ", "\\ ")
    assert f"go on with: DEMO_DIR={folder} make demo\n" in out
    (run,) = (tmp_path / "a demo/runs").iterdir()
    assert (
        f"HEADRACE_REGISTRY={folder}/registry .venv/bin/headrace flow resume {folder}/runs" in out
    )

    code, out = interrupted_demo(tmp_path, ctrl_c=False)
    assert code == 130, out
    assert f"going on with the run in {run}" in out
    assert list((tmp_path / "a demo/runs").iterdir()) == [run]
