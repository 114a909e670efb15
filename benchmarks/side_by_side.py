# SPDX-License-Identifier: Apache-2.0
"""Run two programs side by side: CPU time of children, the machine, where the programs are."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


@dataclasses.dataclass
class Usage:
    """What one child process took."""

    cpu_seconds: float
    wall_seconds: float
    peak_mib: float
    stdout: str


def run_child(
    command: Sequence[str],
    stdin: str = "",
    timeout_s: float = 3600.0,
    environment: Mapping[str, str] | None = None,
) -> Usage:
    """Run to the end and return its CPU time with its children's; a failing child ends the script.

    One thread per process unless the command says otherwise, so that CPU times compare.
    """
    launcher = [sys.executable, str(ROOT / "benchmarks" / "measure.py"), *command]
    began = time.perf_counter()
    done = subprocess.run(
        launcher,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        check=False,
    )
    wall = time.perf_counter() - began
    if done.returncode != 0:
        sys.exit(
            f"{' '.join(command[:4])} ended with {done.returncode}; its last lines:\n"
            + "\n".join(done.stderr.splitlines()[-15:])
        )
    usage = json.loads(done.stderr.splitlines()[-1])
    return Usage(usage["cpu_seconds"], wall, usage["peak_mib"], done.stdout)


@dataclasses.dataclass
class Figure:
    """One measured number and what it should be; `goal` None: told, not judged."""

    name: str
    value: float
    goal: float | None = None
    at_least: bool = True
    unit: str = ""
    note: str = ""

    def plain(self) -> dict:
        """As JSON has it; numpy's numbers become plain ones."""
        return {**vars(self), "value": float(self.value)}

    @property
    def met(self) -> bool:
        """Whether the goal is reached; a figure without a goal always is."""
        if self.goal is None:
            return True
        return self.value >= self.goal if self.at_least else self.value <= self.goal


class Figures:
    """What one script measured: printed as a table, written as JSON for run.py."""

    def __init__(self) -> None:
        self.rows: list[Figure] = []

    def add(self, *arguments: object, **options: object) -> None:
        """A Figure of these arguments."""
        self.rows.append(Figure(*arguments, **options))

    def finish(self, path: pathlib.Path | None) -> int:
        """Print, write where asked to, and return the exit code: 0 also where a goal is missed."""
        print(table(self.rows))
        if path:
            document = {"machine": machine(), "figures": [row.plain() for row in self.rows]}
            path.write_text(json.dumps(document, indent=1) + "\n")
        return 0


def table(rows: Sequence[Figure]) -> str:
    """Figures, goals and verdicts in columns."""
    width = max([len(row.name) for row in rows] + [6])
    lines = [f"{'figure':{width}}  {'measured':>12}  {'goal':>12}  "]
    for row in rows:
        sign = "" if row.goal is None else ("≥ " if row.at_least else "≤ ") + f"{row.goal:g}"
        verdict = "" if row.goal is None else "met" if row.met else "MISSED"
        measured = f"{row.value:.4g} {row.unit}".strip()
        lines.append(f"{row.name:{width}}  {measured:>12}  {sign:>12}  {verdict:6}  {row.note}")
    return "\n".join(line.rstrip() for line in lines)


def machine() -> dict:
    """Where and when a figure was measured."""
    model = "unknown"
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "date": datetime.date.today().isoformat(),
    }


def headrace_command() -> str:
    """Path of the command line tool: beside this Python, else on the path."""
    beside = pathlib.Path(sys.executable).with_name("headrace")
    found = str(beside) if beside.exists() else shutil.which("headrace")
    if not found:
        sys.exit("headrace is not installed beside this Python; run `make build` first")
    return found


def reference_python(given: str | None) -> str:
    """The Python that has gluonts, or an end with the commands that make one."""
    candidates = [given] if given else [sys.executable, str(ROOT / ".venv-reference/bin/python")]
    for candidate in candidates:
        probe = [candidate, "-c", "import importlib.util as u; assert u.find_spec('gluonts')"]
        if (
            pathlib.Path(candidate).exists()
            and not subprocess.run(probe, capture_output=True, check=False).returncode
        ):
            return candidate
    sys.exit(
        f"gluonts is not installed in {' or '.join(candidates)}; make an environment with:\n"
        "  python3 -m venv .venv-reference\n"
        "  .venv-reference/bin/pip install -r requirements-reference.txt\n"
        "or name one with --reference-python"
    )


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--reference-python", help="a Python that has gluonts and torch")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file too")
    return parser
