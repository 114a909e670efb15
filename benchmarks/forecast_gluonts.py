# SPDX-License-Identifier: Apache-2.0
"""Train one local model of H5, same steps: headrace, GluonTS as shipped, GluonTS tuned.

Tuned means cached transformation and 32 windows per pass. The sides take turns; figures are ratios
of the medians of CPU seconds. headrace counts from the start of its command to its end with the
model registered and the forecast written; GluonTS counts the call of `train` alone.
"""

import json
import pathlib
import statistics
import sys
import tempfile

from gluonts_reference import WORKER, job
from headrace_runs import PARITY, run_local
from m4_hourly import m4_hourly
from side_by_side import Figures, argument_parser, reference_python, run_child

ITEM = "H5"


def main() -> int:
    """Measure in turns and print seconds and ratios."""
    parser = argument_parser(__doc__)
    parser.add_argument("--steps", type=int, default=500, help="optimiser steps, a multiple of 50")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    python = reference_python(options.reference_python)
    values = m4_hourly()[0][ITEM]
    seconds: dict[str, list[float]] = {"headrace": [], "shipped": [], "cached": []}
    for turn in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            train = {**PARITY, "epochs": options.steps // 50, "seed": turn + 1}
            usage, _ = run_local([ITEM], train, pathlib.Path(folder))
            seconds["headrace"].append(usage.cpu_seconds)
        for loader in ("shipped", "cached"):
            request = {**job(ITEM, values, turn + 1, loader), "steps": options.steps}
            result = json.loads(run_child([python, str(WORKER)], json.dumps(request)).stdout)
            seconds[loader].append(result["train_cpu_seconds"])
        print(", ".join(f"{name} {taken[-1]:.2f} s" for name, taken in seconds.items()), flush=True)
    median = {name: statistics.median(taken) for name, taken in seconds.items()}
    figures = Figures()
    what = f"{options.steps} steps, CPU"
    figures.add(f"headrace, {what}", median["headrace"], unit="s")
    figures.add(f"GluonTS as shipped, {what}", median["shipped"], unit="s")
    figures.add(f"GluonTS tuned, {what}", median["cached"], unit="s")
    figures.add("GluonTS as shipped / headrace", median["shipped"] / median["headrace"], 8.0)
    figures.add("GluonTS tuned / headrace", median["cached"] / median["headrace"], 5.0)
    return figures.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
