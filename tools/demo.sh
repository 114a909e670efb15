#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job on the example lake: 414 models, compared with the naive methods, and the report.
# DEMO_DIR= where runs and registry go (default ./demo).
set -euo pipefail
cd "$(dirname "$0")/.."
pipeline=examples/m4_hourly/pipeline.json
dir=${DEMO_DIR:-$PWD/demo}
export HEADRACE_REGISTRY=$dir/registry HEADRACE_RUNS=$dir/runs
exec .venv/bin/headrace flow run "$pipeline" "$@"
