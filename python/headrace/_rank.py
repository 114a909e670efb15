# SPDX-License-Identifier: Apache-2.0
"""What a rank of `headrace.run` runs: `python -m headrace._rank`."""

import sys

from headrace._run import call_on_rank

if __name__ == "__main__":
    sys.exit(call_on_rank())
