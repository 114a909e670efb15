# SPDX-License-Identifier: Apache-2.0
"""Score GluonTS's local models on the parity series; stores one line of scores per series and seed.

What is stored already is kept, so the script may be stopped and started again. The file it writes,
benchmarks/results/gluonts_m4_hourly_local.json, is what forecast_accuracy.py compares with.
"""

import json
import pathlib
import sys

import numpy as np
from m4_hourly import HORIZON, LEVELS, PARITY_ITEMS, START, item_scores, m4_hourly
from side_by_side import RESULTS, argument_parser, machine, reference_python, run_child

FILE = RESULTS / "gluonts_m4_hourly_local.json"
WORKER = pathlib.Path(__file__).with_name("gluonts_worker.py")


def job(item: str, values: np.ndarray, seed: int, loader: str = "cached") -> dict:
    """The parity budget: 500 steps of 32 windows, context and horizon 48, else defaults."""
    return {
        "series": [{"item_id": item, "start": START, "values": values.tolist()}],
        "frequency": "h",
        "horizon": HORIZON,
        "context": HORIZON,
        "steps": 500,
        "seed": seed,
        "loader": loader,
    }


def main() -> int:
    """Run what is missing, storing after each run."""
    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    python = reference_python(options.reference_python)
    train, test = m4_hourly()
    stored = json.loads(FILE.read_text()) if FILE.exists() else {"runs": {}}
    stored["machine"], stored["job"] = machine(), {**job("H1", np.zeros(0), 0), "series": []}
    for seed in range(1, options.seeds + 1):
        for item in PARITY_ITEMS:
            key = f"{item}/{seed}"
            if key in stored["runs"]:
                continue
            request = json.dumps(job(item, train[item], seed))
            result = json.loads(run_child([python, str(WORKER)], request).stdout)
            table = dict(zip(result["levels"], np.array(result["quantiles"][item]), strict=True))
            scores = item_scores(train[item], test[item], {q: table[q] for q in LEVELS})
            scores["train_cpu_seconds"] = round(result["train_cpu_seconds"], 2)
            stored["runs"][key], stored["versions"] = scores, result["versions"]
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(stored, indent=1) + "\n")
            print(f"{key}: wQL {scores['wql']:.4f}, MASE {scores['mase']:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
