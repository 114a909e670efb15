# SPDX-License-Identifier: Apache-2.0
"""Sum up JUnit files of several test runners: skips with their reasons, failures, then one line.

The last line is "N passed, N failed, N skipped"; the exit code is 1 when anything failed, or when a
file is missing or holds no test (a runner that did not run is a failure).
Usage: test_summary.py FILE.xml...
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Counts:
    """Results over all files."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, case: ElementTree.Element) -> None:
        """Count one <testcase>."""
        # ctest repeats the name as the class
        name = "::".join(dict.fromkeys(filter(None, (case.get("classname"), case.get("name")))))
        if case.find("failure") is not None or case.find("error") is not None:
            self.failed.append(name)
            return
        skipped = case.find("skipped")
        if skipped is not None:
            self.skipped.append((name, skipped.get("message") or "no reason given"))
        elif case.get("status", "run") in ("run", "passed"):
            self.passed += 1
        else:  # ctest: "fail", "notrun", "disabled"
            self.failed.append(f"{name} ({case.get('status')})")


def read(path: Path, counts: Counts) -> None:
    """Count the cases of one file."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        counts.failed.append(f"{path}: the runner left no readable result ({error})")
        return
    if not cases:
        counts.failed.append(f"{path}: the runner ran no test")
    for case in cases:
        counts.add(case)


def main(paths: list[str]) -> int:
    """Print and answer the exit code."""
    counts = Counts()
    for path in paths:
        read(Path(path), counts)
    for name, reason in counts.skipped:
        print(f"skipped: {name}: {reason}")
    for name in counts.failed:
        print(f"failed: {name}")
    print(
        f"{counts.passed} passed, {len(counts.failed)} failed, {len(counts.skipped)} skipped",
        flush=True,
    )
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
