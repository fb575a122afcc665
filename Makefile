PYTHON ?= python3
PYTEST_ARGS ?=
WORKERS ?= 3
BENCH_ARGS ?=

# Compiled tests and servers are kept, also where the environment forbids it: it halves the time to collect.
export PYTHONDONTWRITEBYTECODE :=
# Most tests wait, so there may be more workers than cores. Groups are in the order of tests/conftest.py.
PYTEST := .venv/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

BIN := .venv/bin
LIGHT := .venv/.installed-to-run
SPARK := .venv/.installed-to-demonstrate
STAMP := .venv/.installed
COMPILED := .venv/.compiled

.DEFAULT_GOAL := help
.PHONY: help setup run demo test test-fast coverage check ready bench bench-spark soak docs screenshots lock clean

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with the tested versions of everything.

$(LIGHT): EXTRAS := dashboard,log
$(LIGHT): SIZE := 600 MB
$(SPARK): EXTRAS := spark
$(SPARK): SIZE := 1.3 GB
$(STAMP): EXTRAS := dev
$(STAMP): SIZE := 2 GB
$(LIGHT) $(SPARK) $(STAMP): pyproject.toml constraints.txt
	@echo "Installing '.[$(EXTRAS)]' into .venv, $(SIZE) in all. The first time takes a few minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@ $(if $(filter $(STAMP),$@),$(LIGHT) $(SPARK))

run: $(LIGHT) ## Start a server on loopback, with a dashboard and its data in data/.
	$(BIN)/penstock serve --data-dir data --dashboard

demo: $(SPARK) ## Show examples/plant, in two minutes: four doors, Spark and a proof.
	$(BIN)/penstock demo

check: $(STAMP) ## Format, lint, types, and who may import whom.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

ready:
	@$(MAKE) --no-print-directory -j 2 check $(COMPILED)

# Once, beside check, which uses one core: else every worker of the first run would compile every test.
$(COMPILED): $(STAMP)
	@$(BIN)/pytest -n 0 --collect-only -qq > /dev/null || true
	@touch $@

test: ready ## Run check, then every test.
	$(PYTEST) $(PYTEST_ARGS)

test-fast: ready ## Run check, then the tests that start nothing but Python.
	$(PYTEST) -m 'not system' $(PYTEST_ARGS)

coverage: $(STAMP) ## Measure the coverage of core and wire by their own tests, and check its floor.
	$(PYTEST) --hypothesis-profile coverage --cov --cov-report= tests/common tests/contract tests/core tests/wire
	$(BIN)/coverage report --include 'src/penstock/core/*' --fail-under 97
	$(BIN)/coverage report --include 'src/penstock/wire/*' --fail-under 98

bench: $(STAMP) ## Measure Penstock beside its peers on this machine.
	$(BIN)/python -m bench --scenario all $(BENCH_ARGS)

bench-spark: $(STAMP) ## Measure the Spark integration beside Spark's own sources and sinks.
	$(BIN)/python -m bench.spark $(BENCH_ARGS)

soak: $(STAMP) ## Run every test, with ten times as much of everything where it matters.
	PENSTOCK_SOAK=1 $(BIN)/pytest --timeout 600 $(PYTEST_ARGS)

docs: $(STAMP) ## Run the tests of conformance for their page, and build the site, in site/.
	$(BIN)/python -m docs.generate
	$(BIN)/python docs/conformance.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html; or, to search too: $(BIN)/python -m http.server --bind 127.0.0.1 -d site"

screenshots: $(STAMP) ## Take the pictures of the console and the dashboard that the docs show.
	$(BIN)/python docs/screenshots.py

lock: ## Write the lock with hashes that the container installs, from constraints.txt; needs uv.
	uv pip compile --quiet --no-annotate --no-header --generate-hashes --python-version 3.11 \
		--extra log --extra dashboard -c constraints.txt pyproject.toml -o deploy/container/requirements.lock

clean: ## Remove what the other goals made.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site .coverage
	find src tests docs bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
