# SPDX-License-Identifier: Apache-2.0
"""Run the command of the arguments; the last line on stderr tells CPU seconds and peak memory."""

import json
import resource
import subprocess
import sys


def main() -> int:
    """Pass stdin, stdout and the exit code through."""
    code = subprocess.run(sys.argv[1:], check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024,
    }
    print("\n" + json.dumps(figures), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
