# SPDX-License-Identifier: Apache-2.0
# Each target first installs what it needs (tools/setup.sh). The build itself is CMake's, by the presets of CMakePresets.json.
.PHONY: build demo test test-sanitize lint bench bench-collectives bench-training bench-memory bench-plan bench-scheduling bench-elastic bench-cluster clean
.DEFAULT_GOAL := build

# A python of the virtual environment finds its own files; PATH decides nothing.
PYTHON := .venv/bin/python

build:
	@tools/setup.sh build
	@tools/build.sh

demo: build
	@$(PYTHON) examples/demo.py

test: build
	@tools/test.sh

test-sanitize:
	@tools/setup.sh build
	@tools/test_sanitize.sh

lint:
	@tools/setup.sh build lint
	@$(PYTHON) tools/lint.py

bench: bench-collectives bench-training bench-memory bench-plan bench-scheduling bench-elastic bench-cluster

bench-collectives bench-training bench-memory bench-plan bench-scheduling bench-elastic bench-cluster: bench-%:
	@tools/setup.sh build bench
	@tools/build.sh
	@mkdir -p bench
	@$(PYTHON) -m benchmarks.bench_$*

clean:
	rm -rf build build-asan build-tsan build-tidy build-wheel python/maypole/_core*.so demo-out
