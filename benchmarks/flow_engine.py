# SPDX-License-Identifier: Apache-2.0
"""What the pipeline engine costs an item, beside a bare round trip to processes that are there.

10,000 no-op items in a ForEach over two warm workers, journal on with group commit, against as many
round trips over socket pairs to two pre-forked processes: once between Python processes
(what the goal was set with) and once between C++ processes (no interpreter on either side). Ray's
tasks where a Python has ray: --ray-python.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from side_by_side import ROOT, Figures, argument_parser, run_child

WORKER = pathlib.Path(__file__).with_name("flow_pipe_worker.py")
RAY = pathlib.Path(__file__).with_name("flow_ray_worker.py")


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def has_ray(python: str) -> bool:
    """Whether this Python can import ray."""
    probe = [python, "-c", "import ray"]
    return (
        pathlib.Path(python).exists()
        and not subprocess.run(probe, capture_output=True, check=False).returncode
    )


def memory(figures: Figures, program: pathlib.Path, many: int, folder: str) -> None:
    """Peak of all processes together, and what it grows by from a tenth of the items to all."""
    few = run_child([str(program), str(many // 10), "1", folder]).peak_mib
    all_of_them = run_child([str(program), str(many), "1", folder]).peak_mib
    figures.add(f"flow, peak memory of {many:,} items", all_of_them, unit="MiB")
    grown = (all_of_them - few) * 1024 / (many - many // 10)
    figures.add("flow, memory of an item more", grown, 1, at_least=False, unit="KiB")


def main() -> int:
    """The sides take turns; the medians count."""
    parser = argument_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="few items: does the script work?")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--many", type=int, default=100_000, help="items for the memory figures")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--ray-python", default=str(ROOT / ".venv-ray/bin/python"))
    options = parser.parse_args()
    if options.quick:
        options.items, options.repeats, options.many = 1000, 1, 10_000
    program = options.build / "headrace" / "flow" / "flow_overhead"
    if not program.exists():
        sys.exit(f"{program} is not there; configure with HEADRACE_BENCHMARKS=ON and build")
    flow, bare = [], []
    with tempfile.TemporaryDirectory(dir=options.build) as folder:
        for _ in range(options.repeats):
            command = [str(program), str(options.items), "1", folder]
            flow.append(json.loads(run_child(command).stdout))
            command = [sys.executable, str(WORKER), str(options.items)]
            bare.append(json.loads(run_child(command).stdout))
    wall = [f["flow_us"] / b["wall_us"] for f, b in zip(flow, bare, strict=True)]
    cpu = [f["flow_cpu_us"] / b["cpu_us"] for f, b in zip(flow, bare, strict=True)]
    figures = Figures()
    note = f"{options.items} no-op items, 2 workers, journal on"
    figures.add("flow, CPU of an item", median([f["flow_cpu_us"] for f in flow]), 100, False, "us")
    figures.add("flow / bare pipe (Python), wall", median(wall), 1.6, at_least=False, note=note)
    figures.add("flow / bare pipe (Python), CPU", median(cpu), 1.6, at_least=False)
    figures.add("flow / bare pipe (C++), wall", median([f["wall_ratio"] for f in flow]))
    figures.add("flow / bare pipe (C++), CPU", median([f["cpu_ratio"] for f in flow]))
    if has_ray(options.ray_python):
        command = [options.ray_python, str(RAY), str(min(options.items, 3000))]
        ray = json.loads(run_child(command).stdout.splitlines()[-1])
        own = median([f["flow_us"] for f in flow])
        note = f"Ray {ray['version']} tasks, 2 cores: {ray['wall_us']:.0f} us an item"
        figures.add("Ray tasks / flow, wall", ray["wall_us"] / own, 10, note=note)
    else:
        print(f"{options.ray_python} has no ray: not compared with it")
    with tempfile.TemporaryDirectory(dir=options.build) as folder:
        memory(figures, program, options.many, folder)
    return figures.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
