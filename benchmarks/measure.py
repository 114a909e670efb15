# SPDX-License-Identifier: Apache-2.0
"""Run the command of the arguments; the last line on stderr tells CPU seconds and peak memory.

Peak memory is the sum over the command and its descendants of their proportional set sizes, looked
at twice a second, or the largest single process if that is more.
"""

import json
import pathlib
import resource
import subprocess
import sys

PROC = pathlib.Path("/proc")


def descendants(root: int) -> list[int]:
    """The process and all that came from it, as far as they still hang together."""
    children: dict[int, list[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            # The name in brackets may hold spaces; the parent is the second field after it.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it ended while we looked
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def proportional_kib(pids: list[int]) -> int:
    """Shared pages count in parts, so that the sum is what the machine gives up."""
    total = 0
    for pid in pids:
        try:
            text = (PROC / str(pid) / "smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


def main() -> int:
    """Pass stdin, stdout and the exit code through."""
    child = subprocess.Popen(sys.argv[1:])
    peak_kib = 0
    while True:
        try:
            code = child.wait(timeout=0.5)
            break
        except subprocess.TimeoutExpired:
            peak_kib = max(peak_kib, proportional_kib(descendants(child.pid)))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mib": max(peak_kib, used.ru_maxrss) / 1024,
    }
    print("\n" + json.dumps(figures), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
