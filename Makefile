# SPDX-License-Identifier: Apache-2.0
# Every target installs what it misses and does only what is not done yet. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo build test test-cpp test-python bench lint format clang-tidy fuzz asan asan-clang tsan docs \
        wheel fresh clean venv venv-dev docs-reference stubs

PYTHON ?= python3
BUILD := build/release
VENV := .venv
PY := $(VENV)/bin/python
CORES := $(shell nproc)
FUZZ_SECONDS ?= 10
FUZZ_SEED ?= 0
# Environments of their own for what must not meet the product's versions; tests find them by path.
TEST_VENVS := $(patsubst requirements-%.txt,.venv-%/.done,$(wildcard requirements-reference.txt requirements-mlflow.txt))
BENCH_VENVS := .venv-ray/.done
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: build ## train 414 models out of the M4 Hourly lake, compare, write the report
	@tools/demo.sh

# Ninja shows its progress, but "no work to do" is no news.
ninja = ninja -C $(1) -n $(2) | grep -q 'no work to do' || ninja -C $(1) $(2)

build: $(BUILD)/build.ninja ## leave .venv/bin/headrace and `import headrace` in .venv/bin/python
	@$(call ninja,$(BUILD),headrace_bin _native)
	@$(PY) tools/develop.py

test: test-cpp test-python ## all tests of C++ and Python; the last line sums them up
	@$(PY) tools/test_summary.py $(BUILD)/ctest.xml $(BUILD)/pytest.xml

# The test runners report through their files, so that one failing runner does not hide the other.
test-cpp: build
	@$(call ninja,$(BUILD),all)
	@rm -f $(BUILD)/ctest.xml
	-@ctest --preset release -j $(CORES) --output-junit ctest.xml $(CTEST_OPTIONS)

test-python: build $(VENV)/.dev $(TEST_VENVS)
	@tools/apt.sh test
	@rm -f $(BUILD)/pytest.xml
	-@$(PY) -m pytest -q --junitxml=$(BUILD)/pytest.xml $(PYTEST_OPTIONS)

bench: build $(VENV)/.dev $(TEST_VENVS) $(BENCH_VENVS) ## us and the peers in one run, as ratios of CPU time
	@tools/apt.sh bench
	@$(call ninja,$(BUILD),all)
	@$(PY) benchmarks/run.py $(BENCH_OPTIONS)

lint: $(VENV)/.dev ## formatting, ruff, mypy, tools/tidy.py
	@tools/lint.sh

format: $(VENV)/.dev ## format C++ and Python in place
	@git ls-files '*.cc' '*.h' | xargs $(VENV)/bin/clang-format -i
	@$(VENV)/bin/ruff check -q --fix . ; $(VENV)/bin/ruff format -q .

clang-tidy: build ## clang-tidy 19 on FILES= (default: what differs from main)
	@tools/apt.sh fuzz deep
	@cmake --preset clang -DPython_EXECUTABLE=$(CURDIR)/$(PY) >/dev/null
	@files="$(FILES)"; [ -n "$$files" ] || files=$$(git diff --name-only main -- '*.cc'); \
	 [ -z "$$files" ] || clang-tidy-19 -p build/clang --quiet --warnings-as-errors='*' $$files

fuzz: venv ## run every fuzzer for FUZZ_SECONDS (10) on top of its corpus
	@tools/apt.sh build fuzz
	@cmake --preset fuzz -DPython_EXECUTABLE=$(CURDIR)/$(PY) >/dev/null
	@$(call ninja,build/fuzz,headrace_fuzzers)
	@$(PY) tools/fuzz.py build/fuzz $(FUZZ_SECONDS) $(FUZZ_SEED)

# What .ci/run takes for asan: one build with clang serves tests and fuzzers.
asan-clang: venv
	@tools/apt.sh fuzz
	@$(call sanitized,fuzz,all,)

asan: venv ## C++ tests under the address and undefined-behaviour sanitizers
	@$(call sanitized,asan-ubsan,all,)

tsan: venv ## C++ tests under the thread sanitizer
	@$(call sanitized,tsan,all,)

# $(call sanitized,PRESET,TARGETS,CTEST OPTIONS)
define sanitized
tools/apt.sh build && \
cmake --preset $(1) -DPython_EXECUTABLE=$(CURDIR)/$(PY) >/dev/null && \
{ $(call ninja,build/$(1),$(2)); } && \
rm -f build/$(1)/ctest.xml && \
ctest --preset $(1) -j $(CORES) --output-junit ctest.xml $(3) $(CTEST_OPTIONS)
endef

docs-reference: build ## write again the pages made from --help and from the table of metrics
	@$(PY) tools/reference_pages.py $(VENV)/bin/headrace

stubs: build $(VENV)/.dev ## write again the type stubs of headrace._native
	@$(PY) tools/stub.py

docs: build $(VENV)/.dev ## the manual, into build/docs
	@$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

wheel: venv $(VENV)/.dev ## a wheel for any Linux with glibc 2.35, into dist/
	@tools/wheel.sh

fresh: ## prove it: clone into a minimal Debian 12 and run `make demo` and `make test` there (root)
	@tools/apt.sh fresh
	@tools/fresh.sh

clean: ## remove what was built (not .venv)
	rm -rf build dist wheelhouse

# ---- environments: one stamp each, redone when its list changes ----
venv: $(VENV)/.build

venv-dev: $(VENV)/.dev

$(VENV)/bin/python:
	@tools/apt.sh build
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.build: requirements-build.txt tools/apt-packages.txt | $(VENV)/bin/python
	@tools/apt.sh build
	@echo "installing requirements-build.txt into $(VENV)"
	@$(PY) -m pip install -qq -r requirements-build.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.build
	@echo "installing requirements-dev.txt into $(VENV)"
	@$(PY) -m pip install -qq -r requirements-dev.txt
	@touch $@

.venv-%/.done: requirements-%.txt | $(VENV)/bin/python
	@echo "installing $< into .venv-$*"
	@[ -x .venv-$*/bin/python ] || $(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip install -qq --no-compile -r $<
	@touch $@

$(BUILD)/build.ninja: CMakePresets.json $(VENV)/.build
	@cmake --preset release -DPython_EXECUTABLE=$(CURDIR)/$(PY) >/dev/null
	@touch $@
