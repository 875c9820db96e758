# Everything a contributor runs. Needs make and a Python >= 3.11 with venv, nothing else: `make help`.

PYTHON ?= python3
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/isthmus-tests
VENV := .venv
BIN := $(VENV)/bin

PARTS := unit golden feature conformance property fault fuzz envoy kube operate deploy
BENCHMARKS := pipeline watchers faults ambient dataplane domains scale operate
BENCHES = $(foreach name,$(filter $(or $(NAME),$(BENCHMARKS)),$(BENCHMARKS)),$(if $(wildcard tests/bench/$(name).py),$(name)))
PART ?=
NAME ?=
SIZE ?= small
SECONDS ?= 60
DOMAINS ?= 2000
PYTEST_ARGS ?=

PROTO_SOURCES := $(wildcard xds/proto/*.proto xds/proto/*.py)
PROTO_OUTPUTS := xds/protos.bin xds/protos.pyi
PROTO_VENV := $(CACHE)/protos

.DEFAULT_GOAL := help
.PHONY: help venv protos demo envoy test check lint golden conformance soak bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/.ready ## .venv with the product (editable), its tests and tools

$(VENV)/.ready: pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Isthmus needs Python 3.11 or newer: make PYTHON=python3.x")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,bench,dev]'
	@touch $@

protos: $(PROTO_VENV)/.ready ## the message types again, whatever changed
	$(PROTO_VENV)/bin/python xds/proto/compile.py xds/protos.bin
	$(PROTO_VENV)/bin/python xds/proto/stubs.py xds/protos.bin xds/protos.pyi

# xds-protos must never be in .venv: an environment of its own, with what pyproject.toml requires for building.
$(PROTO_VENV)/.ready: pyproject.toml
	@mkdir -p $(CACHE)
	@test -x $(PROTO_VENV)/bin/python || $(PYTHON) -m venv $(PROTO_VENV)
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		> $(PROTO_VENV)/requirements.txt
	$(PROTO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $(PROTO_VENV)/requirements.txt
	@touch $@

# The editable installation writes the message types. Asked again in a second make, which looks at what that wrote,
# the rule below only acts where a source has changed since.
.PHONY: ready
ready: $(VENV)/.ready
	@$(MAKE) --silent xds/protos.pyi

xds/protos.pyi: $(PROTO_SOURCES)
	@$(MAKE) --no-print-directory protos

demo: ready ## two clusters and traffic between them (ONCE=1: one round, then exit)
	@envoy="$$($(BIN)/python -m tests.kit.envoy)" && exec $(BIN)/isthmus demo --envoy "$$envoy" $(if $(ONCE),--once)

envoy: ready ## the Envoy that tests and demo run, in a place of its own; prints where
	@$(BIN)/python -m tests.kit.envoy

test: ready ## all tests, or PART=unit (golden, feature, conformance, property, fault, fuzz, envoy, kube, operate, deploy)
	@test -z "$(PART)" || test -d "tests/$(PART)" || { echo "make test: there is no tests/$(PART); parts: $(PARTS)" >&2; exit 1; }
	$(BIN)/python -m pytest $(if $(PART),tests/$(PART),tests) $(PYTEST_ARGS)

check: lint ## in under a minute: style, types, import contracts, unit and golden tests
	$(BIN)/python -m pytest -q -m 'not slow' $(wildcard tests/unit tests/golden) $(PYTEST_ARGS)

lint: style types contracts ## style, types, import contracts

.PHONY: style types contracts
style: ready
	$(BIN)/ruff check .

types: ready
	$(BIN)/mypy

contracts: ready
	$(BIN)/lint-imports --no-logo

golden: ready ## rewrite the expected results of tests/golden, and delete orphans
	ISTHMUS_GOLDEN=rewrite $(BIN)/python -m pytest -q tests/golden $(PYTEST_ARGS)

conformance: ready ## all of tests/conformance, with the long suites of others
	$(BIN)/python -m pytest tests/conformance $(PYTEST_ARGS)

soak: ready ## changes, restarts and leavers for SECONDS=60, and what they left behind; then DOMAINS=2000 in weather
	@mkdir -p bench-results
	$(BIN)/python -m tests.bench.soak --seconds $(SECONDS)
	$(BIN)/python -m tests.bench.domain_weather --seconds $(SECONDS) --domains $(DOMAINS)

bench: ready ## benchmarks, or NAME=pipeline (watchers, faults ...); SIZE=small|full
	@test -n "$(BENCHES)" || { echo "make bench: no tests/bench/$(or $(NAME),*).py yet; names: $(BENCHMARKS)" >&2; exit 1; }
	@mkdir -p bench-results
	@set -e; for name in $(BENCHES); do $(BIN)/python -m tests.bench.$$name --size $(SIZE); done

clean: ## remove what builds and tools wrote here, .venv included
	rm -rf $(VENV) build dist *.egg-info $(PROTO_OUTPUTS) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
