# SPDX-License-Identifier: Apache-2.0
"""No-op tasks through Ray on two cores, for flow_engine.py. Prints one JSON object.

Usage: flow_ray_worker.py ITEMS
"""

import json
import sys
import time

import ray


@ray.remote
def noop(number: int) -> int:
    """Return what came."""
    return number


def main() -> int:
    """At most 20 tasks in flight, as a ForEach with the default batchCount."""
    items = int(sys.argv[1])
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")

    def rounds(count: int) -> None:
        waiting = []
        for number in range(count):
            waiting.append(noop.remote(number))
            if len(waiting) >= 20:
                ready, waiting = ray.wait(waiting)
                ray.get(ready)
        ray.get(waiting)

    rounds(200)
    began = time.perf_counter()
    rounds(items)
    figures = {"wall_us": (time.perf_counter() - began) / items * 1e6, "version": ray.__version__}
    print(json.dumps(figures))
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
