PYTHON ?= python3
PYTEST_ARGS ?=
BENCH_ARGS ?=

BIN := .venv/bin
LIGHT := .venv/.installed-to-run
STAMP := .venv/.installed
INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench bench-spark soak docs clean

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with the tested versions of everything.

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) '.[dev]'
	@touch $@ $(LIGHT)

$(LIGHT): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) '.[log]'
	@touch $@

run: $(LIGHT) ## Start a server on loopback.
	$(BIN)/penstock serve

check: $(STAMP) ## Format, lint, types, and who may import whom.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: check ## Run check, then every test.
	$(BIN)/pytest $(PYTEST_ARGS)

bench: $(STAMP) ## Measure Penstock beside its peers on this machine.
	$(BIN)/penstock bench --scenario all $(BENCH_ARGS)

bench-spark: $(STAMP) ## Measure the pipeline beside Spark's own sources and sinks.
	$(BIN)/python bench/spark.py $(BENCH_ARGS)

soak: $(STAMP) ## Run every test, with ten times as much of everything where it matters.
	PENSTOCK_SOAK=1 $(BIN)/pytest --timeout 600 $(PYTEST_ARGS)

docs: $(STAMP) ## Write the generated pages anew and check every link.
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/conformance.py
	$(BIN)/pytest -q tests/test_docs.py

clean: ## Remove what the other goals made.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
