# SPDX-License-Identifier: Apache-2.0
"""Write the pages of the manual that are made from the product itself.

docs/reference/cli.md comes from the binary's --help, docs/operations/metrics.md from the table of
metrics.
Usage: reference_pages.py BINARY
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS_PAGE = ROOT / "docs/reference/cli.md"
METRICS_PAGE = ROOT / "docs/operations/metrics.md"

COMMANDS_HEAD = """# Commands

This page is made from `headrace --help` by `tools/reference_pages.py`; `make docs-reference` writes
it again.

"""

COMMANDS_TAIL = """
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


def commands_page(binary: str) -> str:
    root = help_of(binary)
    version = root.split()[1].rstrip(":")
    parts = [
        COMMANDS_HEAD,
        "```text\n",
        root.replace(f"headrace {version}:", "headrace:"),
        "\n```\n",
    ]
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
    return "".join(parts) + COMMANDS_TAIL


METRICS_HEAD = """# Metrics

Counting is on a board in shared memory ([its format](../formats/board.md)): it costs nanoseconds
and never blocks. A run that cannot have a board says so once and goes on without.

`headrace flow run`, `flow resume` and `forecast train` have one board for the engine, which counts
`flow.*` and its own `process.*`, and one for each worker that opens a registry, which counts
`registry.*`. When a worker ends, however it ends, the engine adds its counters and histograms to
its own; gauges end with their process. `headrace flow status RUN --json` shows the sum under
`metrics`, with `"live": true` while the run is driven; at the end it is kept in the run's folder as
`metrics.json`. Both give times in seconds, and of a histogram `count`, `sum`, `p50` and `p95`,
exact to half an octave.

A rank of `headrace run`, torchrun, Slurm or MPI has a board from its first `init` to its end, on
which it counts `comm.*` and `process.*`; in Python `headrace.metrics.snapshot()` reads it, and
`headrace run --output-filename DIR` keeps its last numbers in `DIR/rank.N/metrics.json`. Operations
that end at once may come to the board up to 255 later for each process set. Bytes are those of the
call's buffers, whatever the algorithm sends; `transport` is `shm` where all ranks of the set share
memory. `op="negotiation"` is what ranks exchange to agree on what is next.

A resumed run has a new engine, which counts anew, but for `flow.items`: that is always of the whole
run. Items inside of items count too, but for `flow.item_seconds`. `flow.eta_seconds` takes the mean
pace since the last item that was taken over from before; it is absent until one has ended.

```bash
headrace flow run examples/commands/pipeline.json --dir counted
headrace flow status counted --json | grep -o '"flow.items{[^,]*'
```

Exporters will show a metric as `headrace_` + its name with `_` for the dot, counters with `_total`
behind. This page is made from `headrace/base/metric_names.h`; what is not in it is not counted.

| metric | type | unit | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    table = (ROOT / "headrace/base/metric_names.h").read_text()
    rows = re.findall(
        r'\{"([\w.]+)",\s*MetricType::(\w+),\s*"([^"]*)",\s*"([^"]*)"\}', table, flags=re.DOTALL
    )
    assert len(rows) == table.count("MetricType::"), "a row of kMetrics is not understood"
    return METRICS_HEAD + "".join(
        f"| `{name}` | {kind} | {unit or 'count'} | {text} |\n" for name, kind, unit, text in rows
    )


if __name__ == "__main__":
    COMMANDS_PAGE.write_text(commands_page(sys.argv[1]))
    METRICS_PAGE.write_text(metrics_page())
