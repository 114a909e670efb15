# SPDX-License-Identifier: Apache-2.0
"""Run each built fuzzer for some seconds on its corpus; new inputs go to the build folder.

Prints one line per fuzzer and, on a crash, the end of its output and the input's path.
Usage: fuzz.py BUILD_FOLDER SECONDS [SEED]

With a SEED other than 0 the inputs are the same each time, as far as the machine comes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fuzzers(build: Path) -> list[Path]:
    """The executables named *_fuzz."""
    return sorted(
        path
        for path in (build / "headrace").rglob("*_fuzz")
        if path.is_file() and os.access(path, os.X_OK)
    )


def run(fuzzer: Path, build: Path, seconds: int, seed: int) -> str | None:
    """Run one; None when it is well, else what happened."""
    # lake_parquet_fuzz -> fuzz/corpus/parquet or fuzz/corpus/lake_parquet
    name = fuzzer.name.removesuffix("_fuzz")
    seeds = [ROOT / "fuzz/corpus" / n for n in (name, name.partition("_")[2])]
    seeds = [folder for folder in seeds if folder.is_dir()]
    if not seeds:
        return f"{fuzzer.name}: no corpus in fuzz/corpus/{name}"
    found = build / "found" / name
    crashes = build / "crashes" / name
    for folder in (found, crashes):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        str(fuzzer),
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        "-timeout=25",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={crashes}/",
        str(found),
        *map(str, seeds),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds * 3 + 60
        )
    except subprocess.TimeoutExpired:
        return f"{fuzzer.name}: did not end {seconds * 2 + 60} s after its time"
    if done.returncode != 0:
        return f"{fuzzer.name}: exit code {done.returncode}\n{done.stderr[-4000:]}"
    units = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    print(f"{fuzzer.name}: {units.group(1) if units else '?'} inputs, nothing found", flush=True)
    return None


def main(build_folder: str, seconds: str, seed: str = "0") -> int:
    """Run all, one per core."""
    build = Path(build_folder).resolve()
    programs = fuzzers(build)
    if not programs:
        print("no fuzzer is built")
        return 1
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        problems = list(pool.map(lambda f: run(f, build, int(seconds), int(seed)), programs))
    for problem in filter(None, problems):
        print(problem)
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
