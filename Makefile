PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=
WORKERS ?= 3
BENCH_ARGS ?=

# Byte code of tests and servers is kept, also where the environment forbids it: it halves the time to collect.
export PYTHONDONTWRITEBYTECODE :=
# Most tests wait, so there may be more workers than cores. Groups are in the order of tests/conftest.py.
PYTEST := .venv/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# The checkout, whatever the environment says; and the tests of what is compiled, and of the formats it stores.
PURE := $(abspath src)
HOT_TESTS := tests/contract tests/core tests/doors tests/net tests/storage/disk/pieces tests/wire

BIN := .venv/bin
LOCKS := deploy/container
SERVER := .venv/.installed-to-run
DASHBOARD := .venv/.installed-dashboard
SPARK := .venv/.installed-to-demonstrate
STAMP := .venv/.installed
BYTECODE := .venv/.bytecode
COMPILED := .venv/compiled
AS_COMPILED = PYTHONPATH=$(abspath $(COMPILED))
COMPILE_FAILED := .venv/.compile-failed
COMPILE_LOG := .venv/compile.log
# Succeeds if a goal is up to date. Not $(MAKE), which would run the recipes that it is in even then.
QUESTION = $(MAKE_COMMAND) -q --no-print-directory 2> /dev/null
SOURCES := $(shell find src -name __pycache__ -prune -o -type f -print 2> /dev/null) pyproject.toml hatch_build.py
INSTALL_LOG := .venv/install.log
CLASSES := .venv/.classes/spark.jsa

.DEFAULT_GOAL := help
.PHONY: help run dashboard demo compile setup test test-fast coverage check ready bench bench-goals bench-cost bench-spark soak docs screenshots lock release clean

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(SERVER) ## Start a server on loopback, with its data in data/; ARGS='--http-port 8090' adds flags.
	$(call prefer_compiled) exec $(BIN)/penstock serve --data-dir data $(ARGS)

dashboard: $(DASHBOARD) ## Start the same server with the Streamlit dashboard beside it.
	$(call prefer_compiled) exec $(BIN)/penstock serve --data-dir data --dashboard $(ARGS)

demo: $(SPARK) ## Show examples/plant, in two minutes: four doors, Spark and a proof.
	$(BIN)/penstock demo

compile: $(COMPILED) ## Compile the hot path for `make run`, which does it in the background otherwise; needs a C compiler.

# A server starts at once: with the compiled hot path if there is one of these sources, else with pure Python
# while the hot path is compiled for the next start. A failure is not tried again before something changes.
define prefer_compiled
	@if $(QUESTION) $(COMPILED); then \
		export PYTHONPATH="$(abspath $(COMPILED))$${PYTHONPATH:+:$$PYTHONPATH}"; \
	elif ! missing=$$($(BIN)/python hatch_build.py 2>&1); then \
		echo "The server runs as pure Python, and slower. $$missing"; \
	elif $(QUESTION) $(COMPILE_FAILED); then \
		echo "The server runs as pure Python, and slower: the hot path did not compile; $(COMPILE_LOG) says why."; \
	else \
		echo "The hot path is compiled in the background, for the next start. This server runs as pure Python."; \
		setsid nice $(MAKE_COMMAND) $(COMPILED) > /dev/null 2>&1 < /dev/null & \
	fi;
endef

# Complete or not at all, and as old as the start of the build: a source that changes meanwhile is compiled the
# next time. Where the tools are installed, as by `make setup`, they are used; else pip fetches them.
$(COMPILED): $(SOURCES) | $(SERVER)
	@$(BIN)/python hatch_build.py
	@echo "Compiling the hot path into $@: a few minutes."
	@exec 9> .venv/.compile-lock; flock 9; $(QUESTION) $@ && exit; \
	rm -rf $@.new $(COMPILE_FAILED); touch .venv/.compile-start; \
	$(BIN)/python -c 'import hatchling, mypyc, setuptools' 2> /dev/null && isolation=--no-build-isolation; \
	PENSTOCK_BUILD=compiled $(BIN)/python -m pip install --no-deps --disable-pip-version-check --progress-bar off \
		$$isolation --target $@.new . > $(COMPILE_LOG) 2>&1 9>&- \
		|| { tail -n 25 $(COMPILE_LOG) >&2; touch -r .venv/.compile-start $(COMPILE_FAILED); \
			echo "The hot path did not compile; all of pip's output is in $(COMPILE_LOG)." >&2; exit 1; }; \
	touch -r .venv/.compile-start $@.new && rm -rf $@ && mv $@.new $@

# Made by the recipe above; here only to ask whether it is younger than the sources.
$(COMPILE_FAILED): $(SOURCES)
	@test -e $@

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
	$(call install,--no-deps -e .,PENSTOCK_BUILD=pure)
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

# Only what is imported gets byte code, at its first import.
define install
	@$(2) $(BIN)/python -m pip install --no-compile --disable-pip-version-check --progress-bar off $(1) > $(INSTALL_LOG) 2>&1 \
		|| { tail -n 25 $(INSTALL_LOG) >&2; echo "The installation failed; all of pip's output is in $(INSTALL_LOG)." >&2; exit 1; }
endef

check: $(STAMP) ## Format, lint, types, and who may import whom.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

ready: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 check $(BYTECODE) $(ALSO)

# Once, beside check, which uses one core: else every worker of the first run would compile every test.
$(BYTECODE): $(STAMP)
	@$(BIN)/pytest -n 0 --collect-only -qq > /dev/null || true
	@touch $@

# Once too: every JVM of the tests needs half as long with it.
$(CLASSES): $(STAMP)
	@mkdir -p $(@D) && rm -f $(@D)/*
	@$(BIN)/python tests/spark/typical.py $(abspath $(@D)/java.jsa) $(abspath $@) > $(@D)/log 2>&1 || test -e $@ \
		|| echo "There is no archive of Spark's classes, so its tests take longer; $(@D)/log says why."

test: ALSO = $(CLASSES) $(if $(shell $(BIN)/python hatch_build.py 2>&1),,$(COMPILED))
test: ready ## Run check, then every test on the compiled build, then those of the hot path as pure Python.
	@missing=$$($(BIN)/python hatch_build.py 2>&1) || { \
		echo "Every test runs as pure Python. $$missing"; PYTHONPATH=$(PURE) $(PYTEST) $(PYTEST_ARGS); exit; }; \
	$(AS_COMPILED) $(PYTEST) $(PYTEST_ARGS); compiled=$$?; \
	PYTHONPATH=$(PURE) $(PYTEST) -m 'not system' $(HOT_TESTS) $(PYTEST_ARGS); pure=$$?; \
	echo "pytest ended with $$compiled on the compiled build, and with $$pure as pure Python."; \
	test $$compiled = 0 -a $$pure = 0

test-fast: ready ## Run check, then the tests that start nothing but Python, as pure Python.
	PYTHONPATH=$(PURE) $(PYTEST) -m 'not system' $(PYTEST_ARGS)

coverage: $(STAMP) ## Measure the coverage of core and wire by their own tests, and check its floor.
	PYTHONPATH=$(PURE) $(PYTEST) --hypothesis-profile coverage --cov --cov-report= tests/common tests/contract tests/core tests/wire
	$(BIN)/coverage report --include 'src/penstock/core/*' --fail-under 97
	$(BIN)/coverage report --include 'src/penstock/wire/*' --fail-under 98

bench: $(STAMP) $(COMPILED) ## Measure Penstock, compiled, beside its peers on this machine.
	$(AS_COMPILED) $(BIN)/python -m bench --scenario all $(BENCH_ARGS)

bench-goals: $(STAMP) $(COMPILED) ## Measure the scenarios with goals beside mosquitto, the newest and Debian's: medians of five, ratios of rate and CPU.
	$(AS_COMPILED) $(BIN)/python -m bench --scenario goals --repeat 5 --peers mosquitto,mosquitto-debian $(BENCH_ARGS)

bench-cost: $(STAMP) $(COMPILED) ## Measure the CPU time of a message inside the server, by stage and without sockets.
	$(AS_COMPILED) $(BIN)/python -m bench.cost $(BENCH_ARGS)

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

release: $(STAMP) ## Build wheels, sdist, SBOM and checksums in dist/, and start a server from each wheel; publishes nothing.
	.ci/release

clean: ## Remove what the other goals made.
	rm -rf .venv __pycache__ .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist site .coverage
	find src tests docs bench examples \( -name __pycache__ -o -name .pytest_cache \) -type d -prune -exec rm -rf {} +
