# One command for each thing. `make help` lists them.
ARGS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PRESET ?= dev
PYTHON := build/venv/bin/python
.DEFAULT_GOAL := help
.PHONY: help setup setup-slow demo build test test-slow simulate soak bench compare format lint clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## install what is missing (apt and pip; says what)
	@tools/setup >&2

setup-slow:
	@tools/setup --slow >&2

demo: setup ## build, then replay a trace: make demo ARGS="--requests 500 --json"
	@cmake --preset release >&2
	@cmake --build --preset release -j $(JOBS) --target mooncake_programs >&2
	@build/release/bin/mooncake demo $(ARGS)

build: setup ## build everything of PRESET (default: dev)
	@cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET) -j $(JOBS)

test: setup ## build and run the fast tests
	@$(PYTHON) tools/run_tests.py fast $(ARGS)

test-slow: setup-slow ## sanitizers, fuzzers, more seeds, slow tests
	@$(PYTHON) tools/run_tests.py slow $(ARGS)

simulate: setup ## 10 000 seeds of the cluster simulation (MOONCAKE_SIM_SEEDS=n for another number)
	@MOONCAKE_SIM_SEEDS=$${MOONCAKE_SIM_SEEDS:-10000} $(PYTHON) tools/run_tests.py simulate $(ARGS)

soak: setup ## 10 minutes of transfers among processes that are killed and stopped: make soak ARGS="--seconds 60"
	@cmake --preset $(PRESET) >&2
	@cmake --build --preset $(PRESET) -j $(JOBS) --target _native >&2
	@PYTHONPATH=build/$(PRESET)/python $(PYTHON) tests/soak/soak.py $(ARGS)

bench: setup ## build and run the benchmarks: make bench ARGS="--benchmark_filter=frame"
	@cmake --preset release >&2
	@cmake --build --preset release -j $(JOBS) --target mooncake_benches >&2
	@found=; for b in build/release/bench-bin/*; do \
	  [ -x "$$b" ] && [ -f "$$b" ] || continue; found=1; "$$b" $(ARGS) || exit 1; \
	done; [ -n "$$found" ] || echo "no benchmarks yet"

compare: setup ## compare with the published packages: make compare ARGS="--family store"
	@cmake --preset release >&2
	@cmake --build --preset release -j $(JOBS) >&2
	@$(PYTHON) bench/compare $(ARGS)

format: setup ## format all C++ with clang-format 14
	@git ls-files -co --exclude-standard -- '*.h' '*.cpp' '*.cc' '*.cu' | xargs -r clang-format-14 -i

lint: setup ## the style tests alone
	@$(PYTHON) -m pytest -q tests/tidy $(ARGS)

clean: ## remove all build output
	rm -rf build
