#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Run every check that needs no compiler; all of them, even when one fails.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
failed=0
check() {
  local name=$1
  shift
  if output=$("$@" 2>&1); then
    echo "lint: $name ok"
  else
    echo "$output"
    echo "lint: $name FAILED"
    failed=1
  fi
}
check clang-format bash -c "git ls-files '*.cc' '*.h' | xargs -r $bin/clang-format --dry-run -Werror"
check "ruff check" $bin/ruff check -q .
check "ruff format" $bin/ruff format -q --check .
check mypy $bin/mypy
check tidy $bin/python tools/tidy.py
exit $failed
