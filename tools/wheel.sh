#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Build the wheel, graft the shared libraries into it, and try it in a fresh environment.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
rm -rf wheelhouse dist
mkdir -p wheelhouse dist
# The compiler by the name that cmake finds, so that ccache knows what `make build` compiled.
CXX=c++ CC=cc CMAKE_CXX_COMPILER_LAUNCHER=ccache $python -m pip wheel -q --no-build-isolation --no-deps -w wheelhouse .
# glibc 2.34 would do, but libstdc++ of g++ 12 (GLIBCXX_3.4.30) came with 2.35.
# auditwheel must find the libraries of the pyarrow that the build linked.
arrow=$($python -c "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0])")
PATH="$PWD/.venv/bin:$PATH" LD_LIBRARY_PATH="$arrow" \
  $python -m auditwheel repair --plat "manylinux_2_35_$(uname -m)" -w dist wheelhouse/*.whl
rm -rf wheelhouse
$python tools/try_wheel.py dist/*.whl
