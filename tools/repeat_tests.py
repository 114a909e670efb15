# SPDX-License-Identifier: Apache-2.0
"""Run each test of a fault many times in a row. Usage: repeat_tests.py [TIMES [WORD...]].

TIMES is 100 unless it is given; with words only tests whose names hold one of them run. Prints one
line per test: how often it passed, and what the first failure said. Needs what `make test` has
built and installed. HEADRACE_REPEAT_LOAD=2 keeps two cores busy meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "python"
COMM_TEST = ROOT / "build" / "release" / "headrace" / "comm" / "headrace_comm_test"
REFERENCE = ROOT / ".venv-reference" / "bin" / "python"

# C++ sources all of whose cases are faults, and further cases of others.
SOURCES = ["named_death_test.cc", "tcp_failure_test.cc", "mismatch_test.cc", "limits_test.cc",
           "context_test.cc"]  # fmt: skip
CASES = ["C: what differs between ranks is the same failure on both, with a text",
         "a mismatch fails that operation on all ranks and no other"]  # fmt: skip
HVD = {2: "killed an_exception ends_early interrupted forks mismatches stalled", 3: "killed"}
TORCH = {3: "killed_in_training exception_of_a_rank leaving_early late_rank aborted "
            "different_calls_and_a_new_group init_without_a_rank",
         2: "forked_loaders hundred_cycles"}  # fmt: skip
PYTEST = ["test_namespaces.py", "test_run_strangers.py",
          "test_comm_limits.py -k 'not training'",
          "test_run_job.py -k 'fails or killed or raised or interrupted or strangers or early'",
          "test_run_agent.py -k 'fails or outlives or stopped or token'"]  # fmt: skip

# What runs a test TIMES times: how often it passed, and the text of the first failure.
Runner = Callable[[int], tuple[int, str]]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{TESTS}", "OMP_NUM_THREADS": "1"}


def command_runner(command: list[str] | str) -> Runner:
    def run(times: int) -> tuple[int, str]:
        passed, first = 0, ""
        for _ in range(times):
            done = subprocess.run(
                command, shell=isinstance(command, str), capture_output=True, text=True,
                cwd=ROOT, env=environment(), timeout=1200, check=False,
            )  # fmt: skip
            passed += done.returncode == 0
            if done.returncode != 0 and not first:
                first = done.stdout[-6000:] + done.stderr[-3000:]
        return passed, first

    return run


def hvd_runner(size: int, case: str) -> Runner:
    def run(times: int) -> tuple[int, str]:
        done = subprocess.run(
            [str(REFERENCE), str(TESTS / "hvd_ranks.py"), str(size), "hvd_basic_cases",
             *[case] * times],
            capture_output=True, text=True, env=environment(), check=False,
        )  # fmt: skip
        passed, first = 0, ""
        for line in done.stdout.splitlines():
            if line.startswith('{"case"'):
                ranks = json.loads(line)["ranks"]
                good = all(rank[0] for rank in ranks)
                passed += good
                first = first or ("" if good else str(ranks))
        return passed, first or done.stderr[-2000:]

    return run


def torch_runner(size: int, case: str) -> Runner:
    deaths = {"killed_in_training": -9, "exception_of_a_rank": 1, "leaving_early": 0}

    def run(times: int) -> tuple[int, str]:
        passed, first = 0, ""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [str(REFERENCE), str(TESTS / "torch_bundle.py"), "torch_cases_faults", str(size),
                 folder, *[f"{case}@{number}" for number in range(times)]],
                capture_output=True, text=True, env=environment(), check=False,
            )  # fmt: skip
            for number in range(times):
                texts = []
                for rank in range(size):
                    path = Path(folder, str(number), f"{case}.{rank}.json")
                    left = json.loads(path.read_text()) if path.exists() else {"traceback": "none"}
                    ended = deaths.get(case) if rank == 1 else None
                    if "traceback" in left or left.get("ended") != ended:
                        texts.append(f"rank {rank}: {left}")
                passed += not texts
                first = first or "\n".join(texts)
        return passed, first or done.stderr[-2000:]

    return run


def cases_of_source(source: str) -> list[str]:
    told = subprocess.run(
        [str(COMM_TEST), f"--source-file=*{source}", "--list-test-cases"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [
        line
        for line in told.stdout.splitlines()
        if line and not line.startswith(("[doctest]", "="))
    ]


def all_tests() -> dict[str, Runner]:
    tests: dict[str, Runner] = {}
    for case in [*(case for source in SOURCES for case in cases_of_source(source)), *CASES]:
        pattern = re.sub(r"([,\\])", r"\\\1", case)  # the commas would part two of them
        tests[f"C++: {case}"] = command_runner([str(COMM_TEST), f"--test-case={pattern}"])
    for size, cases in HVD.items():
        tests |= {f"hvd, {size} ranks: {case}": hvd_runner(size, case) for case in cases.split()}
    for size, cases in TORCH.items():
        tests |= {f"torch, {size} ranks: {c}": torch_runner(size, c) for c in cases.split()}
    for words in PYTEST:
        command = f"{sys.executable} -m pytest -q -x tests/python/{words}"
        tests[f"pytest: {words}"] = command_runner(command)
    return tests


def main() -> int:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    words = sys.argv[2:]
    spin = [sys.executable, "-c", "while True: pass"]
    load = [
        subprocess.Popen(["nice", *spin])
        for _ in range(int(os.environ.get("HEADRACE_REPEAT_LOAD", "0")))
    ]
    wrong = 0
    try:
        for name, run in all_tests().items():
            if words and not any(word in name for word in words):
                continue
            began = time.monotonic()
            passed, first = run(times)
            print(f"{passed}/{times} {time.monotonic() - began:.0f} s {name}", flush=True)
            if passed != times:
                wrong += 1
                print("\n".join("    " + line for line in first.splitlines()), flush=True)
    finally:
        for process in load:
            process.kill()
    print(f"{wrong} tests failed at least once")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
