PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=
WORKERS ?= 3
BENCH_ARGS ?=

# Compiled tests and servers are kept, also where the environment forbids it: it halves the time to collect.
export PYTHONDONTWRITEBYTECODE :=
# Most tests wait, so there may be more workers than cores. Groups are in the order of tests/conftest.py.
PYTEST := .venv/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

BIN := .venv/bin
LOCKS := deploy/container
SERVER := .venv/.installed-to-run
DASHBOARD := .venv/.installed-dashboard
SPARK := .venv/.installed-to-demonstrate
STAMP := .venv/.installed
COMPILED := .venv/.compiled
INSTALL_LOG := .venv/install.log
CLASSES := .venv/.classes/spark.jsa

.DEFAULT_GOAL := help
.PHONY: help run dashboard demo setup test test-fast coverage check ready bench bench-spark soak docs screenshots lock release clean

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(SERVER) ## Start a server on loopback, with its data in data/; ARGS='--http-port 8090' adds flags.
	$(BIN)/penstock serve --data-dir data $(ARGS)

dashboard: $(DASHBOARD) ## Start the same server with the Streamlit dashboard beside it.
	$(BIN)/penstock serve --data-dir data --dashboard $(ARGS)

demo: $(SPARK) ## Show examples/plant, in two minutes: four doors, Spark and a proof.
	$(BIN)/penstock demo

setup: $(STAMP) ## Make .venv with the tested versions of everything that tests and docs need.

$(SERVER): FOR := the server and its log
$(SERVER): SIZE := 260 MB
$(DASHBOARD): FOR := the server and the Streamlit dashboard
$(DASHBOARD): SIZE := 580 MB
$(SPARK): FOR := the server and Spark, with a Java runtime
$(SPARK): SIZE := 1.3 GB
$(STAMP): FOR := everything that tests, benchmarks and docs need, Spark and Streamlit among it
$(STAMP): SIZE := 2 GB

# With hashes, and without a resolver: quick, and the same files everywhere.
$(SERVER): $(LOCKS)/server.lock pyproject.toml
$(DASHBOARD): $(LOCKS)/dashboard.lock pyproject.toml
$(SERVER) $(DASHBOARD):
	$(call make_environment)
	$(call install,--require-hashes --no-deps -r $<)
	$(call install,--no-deps -e .)
	@touch $@ $(if $(filter $(DASHBOARD),$@),$(SERVER))

$(SPARK): EXTRAS := spark
$(STAMP): EXTRAS := dev
$(SPARK) $(STAMP): pyproject.toml constraints.txt
	$(call make_environment)
	$(call install,-c constraints.txt -e '.[$(EXTRAS)]')
	@touch $@ $(SERVER) $(if $(filter $(STAMP),$@),$(DASHBOARD) $(SPARK))

# A virtual environment of a Python that is new enough; else the message names one that is.
define make_environment
	@python='$(PYTHON)'; test -x $(BIN)/python && python=$(BIN)/python; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
		echo "Penstock needs Python 3.11 or newer; $$python is $$("$$python" -V 2>&1 | tail -1)." >&2; \
		for other in python3.13 python3.12 python3.11; do \
			"$$other" -c '' 2> /dev/null && { echo "Try again with PYTHON=$$other." >&2; break; }; \
		done || echo "Install one, and try again with PYTHON=/path/to/python3.12." >&2; \
		test "$$python" = $(BIN)/python && echo "Remove .venv first, which it made: make clean" >&2; \
		exit 1; \
	fi
	@echo "Installing $(FOR) into .venv: $(SIZE). This happens once."
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv .venv
endef

# Only what is imported is compiled, at its first import.
define install
	@$(BIN)/python -m pip install --no-compile --disable-pip-version-check --progress-bar off $(1) > $(INSTALL_LOG) 2>&1 \
		|| { tail -n 25 $(INSTALL_LOG) >&2; echo "The installation failed; all of pip's output is in $(INSTALL_LOG)." >&2; exit 1; }
endef

check: $(STAMP) ## Format, lint, types, and who may import whom.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

ready:
	@$(MAKE) --no-print-directory -j 2 check $(COMPILED) $(ARCHIVE)

# Once, beside check, which uses one core: else every worker of the first run would compile every test.
$(COMPILED): $(STAMP)
	@$(BIN)/pytest -n 0 --collect-only -qq > /dev/null || true
	@touch $@

# Once too: every JVM of the tests needs half as long with it.
$(CLASSES): $(STAMP)
	@mkdir -p $(@D) && rm -f $(@D)/*
	@$(BIN)/python tests/spark/typical.py $(abspath $(@D)/java.jsa) $(abspath $@) > $(@D)/log 2>&1 || test -e $@ \
		|| echo "There is no archive of Spark's classes, so its tests take longer; $(@D)/log says why."

test: ARCHIVE := $(CLASSES)
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

lock: ## Write the locks with hashes that `make run` and the images install, from constraints.txt; needs uv.
	for lock in "server --extra log" "dashboard --extra log --extra dashboard"; do \
		set -- $$lock; name=$$1; shift; \
		uv pip compile --quiet --universal --no-annotate --no-header --generate-hashes --python-version 3.11 \
			"$$@" -c constraints.txt pyproject.toml -o $(LOCKS)/$$name.lock || exit; \
	done

release: $(STAMP) ## Build wheel, sdist, SBOM and checksums in dist/, and start a server from the wheel; publishes nothing.
	.ci/release

clean: ## Remove what the other goals made.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site .coverage
	find src tests docs bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
