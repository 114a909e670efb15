#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job on the example lake: 414 models, compared with the naive methods, and the report.
# A demo that was stopped goes on where it was; one that has ended, or arguments for `flow run`,
# begin a new one.
# DEMO_DIR= where runs and registry go (default ./demo).
set -euo pipefail
cd "$(dirname "$0")/.."
pipeline=examples/m4_hourly/pipeline.json
dir=${DEMO_DIR:-$PWD/demo}
export HEADRACE_REGISTRY=$dir/registry HEADRACE_RUNS=$dir/runs
headrace=.venv/bin/headrace

# The folder of the newest run when it is stopped, else nothing.
stopped_run() {
    $headrace flow list --limit 1 --json | .venv/bin/python -c '
import json, sys
print("".join(run["folder"] for run in json.load(sys.stdin)["runs"] if run["state"] == "stopped"))'
}

run=
[ $# -gt 0 ] || run=$(stopped_run)

words=(flow run "$pipeline" "$@")
if [ -n "$run" ]; then
    echo "demo: going on with the run in $run, which was stopped; remove that folder to begin anew" >&2
    words=(flow resume "$run")
fi
# In the background, so that traps are not held up by it. A terminal sends Ctrl-C to both.
(trap - INT QUIT; exec $headrace "${words[@]}") &  # what runs in the background has them ignored
child=$!
trap : INT
trap 'kill -TERM $child 2>/dev/null || :' TERM
while kill -0 $child 2>/dev/null; do
    wait $child || :  # a trap ends it too
done
code=0
wait $child || code=$?
if [ $code -eq 130 ]; then
    echo "demo: go on with: ${DEMO_DIR:+DEMO_DIR=$(printf %q "$DEMO_DIR") }make demo" >&2
    # The line that flow prints names no registry, and its models belong into the demo's.
    printf 'demo: or, the same by hand: HEADRACE_REGISTRY=%q %s flow resume %q\n' \
        "$HEADRACE_REGISTRY" "$headrace" "$(stopped_run)" >&2
fi
exit $code
