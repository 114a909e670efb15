# SPDX-License-Identifier: Apache-2.0
"""Run every benchmark script that is there and print all figures beside their goals.

Each script runs us and a peer in one go and writes its figures with --json; so does `make bench`.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from side_by_side import Figure, argument_parser, machine, table

FOLDER = pathlib.Path(__file__).resolve().parent
# Script, its arguments for a usual run, and for --quick (a check that it works, not a measurement).
SCRIPTS = [
    ("forecast_gluonts.py", [], ["--steps", "50", "--repeats", "1"]),
    ("forecast_accuracy.py", ["parity", "--reuse"], ["parity", "--reuse", "--seeds", "1"]),
    ("forecast_accuracy.py", ["defaults"], ["defaults", "--seeds", "1", "--items", "8"]),
    ("forecast_accuracy.py", ["starts"], ["starts", "--seeds", "1"]),
    ("flow_engine.py", [], ["--quick"]),
    ("registry_mlflow.py", ["--large"], ["--quick"]),
    ("comm_collectives.py", [], ["--quick"]),
    ("comm_network.py", [], ["--quick"]),
]


def main() -> int:
    """Failures of one script do not stop the others; the exit code tells of them."""
    parser = argument_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: do the scripts work?")
    parser.add_argument("--only", default="", help="scripts whose name holds this text")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds for one script")
    options = parser.parse_args()
    rows: list[Figure] = []
    failed = []
    for name, usual, quick in SCRIPTS:
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "figures.json"
            command = [sys.executable, str(FOLDER / name), *(quick if options.quick else usual)]
            if options.reference_python:
                command += ["--reference-python", options.reference_python]
            print(f"{name} {' '.join(command[2:])}", flush=True)
            try:
                code = subprocess.run(
                    [*command, "--json", str(path)], check=False, timeout=options.timeout
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
            if code != 0 or not path.exists():
                failed.append(name)
                continue
            rows += [Figure(**figure) for figure in json.loads(path.read_text())["figures"]]
    print()
    if rows:
        print(table(rows))
    print("machine: " + ", ".join(f"{key} {value}" for key, value in machine().items()))
    for name in failed:
        print(f"{name} did not end well; see above", file=sys.stderr)
    if options.json:
        document = {"machine": machine(), "figures": [row.plain() for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
