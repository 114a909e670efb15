# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/cli.md from the binary's own --help.

Usage: cli_reference.py BINARY OUTPUT.md
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HEAD = """# Commands

This page is made from `headrace --help` by `tools/cli_reference.py`; `make docs-reference` writes
it again.

"""

TAIL = """
## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | it ran, and part or all of it failed; or findings; or nothing matched |
| 2 | wrong arguments or input documents; nothing was started |
| 3 | cancelled from outside (`headrace flow cancel`) |
| 130 | interrupted (Ctrl-C or SIGTERM); what can be resumed can be resumed |

## Output

Results go to standard output, everything else to standard error. With `--json` a command prints
one JSON value; an error is `{"error": {"code": ..., "message": ...}}`. On a terminal progress is
one line that is redrawn; elsewhere a plain line comes every ten seconds. `NO_COLOR` switches
colours off.
"""


def help_of(binary: str, *words: str) -> str:
    done = subprocess.run(
        [binary, *words, "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.rstrip("\n")


def names_below(text: str, heading: str) -> list[str]:
    """First column of the block under `heading`."""
    if f"{heading}:\n" not in text:
        return []
    block = text.split(f"{heading}:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (\S+(?: \S+)*)(?:  |$)", block, flags=re.MULTILINE)


def render(binary: str) -> str:
    root = help_of(binary)
    version = root.split()[1].rstrip(":")
    parts = [HEAD, "```text\n", root.replace(f"headrace {version}:", "headrace:"), "\n```\n"]
    for noun in names_below(root, "Nouns"):
        text = help_of(binary, noun)
        verbs = names_below(text, "Verbs")
        if not verbs:
            parts.append(f"\n## headrace {noun}\n\n```text\n{text}\n```\n")
        else:
            parts.append(f"\n## headrace {noun}\n")
        for verb in verbs:
            words = [noun, *verb.split()]
            parts.append(
                f"\n### headrace {' '.join(words)}\n\n```text\n{help_of(binary, *words)}\n```\n"
            )
    return "".join(parts) + TAIL


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(render(sys.argv[1]))
