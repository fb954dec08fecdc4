# The commands a person types. `make` alone lists them. No environment has to be active:
# everything runs from .venv, which is made on first use and brought up to date when
# constraints.txt, requirements-dev.txt or a pyproject.toml changes.

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
PROJECTS := $(patsubst %/pyproject.toml,%,$(wildcard framework/pyproject.toml plugins/*/pyproject.toml zoo/pyproject.toml))
SOURCES := $(addsuffix /src,$(PROJECTS))
READY := .venv/.ready
PYTEST_WITH_DATA := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
PYTEST := env -u PEGBOARD_DATA $(PYTEST_WITH_DATA)
BENCH_PIP := .venv-bench/bin/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help quickstart install test test-all test-data coverage prove lint format docs wheels version release-check catalogue zoo-table known-parts surface schema bench bench-small families start growth clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "  make %-12s %s\n", $$1, $$2 }'

quickstart: $(READY) ## set everything up and train configs/quickstart.yaml
	@$(BIN)/pegboard train configs/quickstart.yaml $(ARGS)

install: $(READY) ## make .venv with the core, all plugins and the zoo, editable
	@:

test: $(READY) ## run the tests, without data and network; ARGS="-k name" runs some
	@$(PYTEST) $(ARGS)

test-all: $(READY) ## the same and the long sweeps over all parts
	@$(PYTEST) -m "not prove" $(ARGS)

test-data: $(READY) ## the tests on real data sets, those in the folder PEGBOARD_DATA
	@test -d "$$PEGBOARD_DATA" || { echo "make test-data reads real data sets: PEGBOARD_DATA=folder make test-data"; exit 2; }
	@PEGBOARD_DATA="$$(cd "$$PEGBOARD_DATA" && pwd)" $(PYTEST_WITH_DATA) -m "data and not prove" $(ARGS)

coverage: $(READY) ## all tests without data, with coverage of the core, which takes half as long again
	@$(PYTEST) -m "not prove" --cov $(ARGS)

prove: $(READY) ## run the long proofs of docs/reliability.md, and write their result there
	@OMP_NUM_THREADS=1 PEGBOARD_PROOFS=docs/reliability.md $(BIN)/python -m pytest -n $(JOBS) -m prove $(ARGS) tests/proofs tests/packaging/test_examples.py tests/packaging/test_scaffold.py tests/tricks/test_tricks_compose.py

lint: $(READY) ## ruff and mypy --strict on the core and every plugin
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict $(SOURCES) $(wildcard docs/examples/plugins/*/src)

format: $(READY) ## let ruff format and mend what it can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY) ## build the site into site/; a wrong link, anchor or page is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo "site/index.html"

wheels: $(READY) ## build every wheel into dist/
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist $(addprefix ./,$(PROJECTS))
	@ls dist/*.whl

version: $(READY) ## write a version into the core, every plugin and the zoo: ARGS=0.4.0
	@$(BIN)/python tests/support/workspace/release.py --set $(ARGS)

release-check: $(READY) ## build every wheel and sdist into dist/, and install each alone, four minutes
	@$(PIP) install -c constraints.txt twine
	@$(BIN)/python tests/support/workspace/release.py $(ARGS)

catalogue: $(READY) ## count the entries of the catalogue; ARGS=dropout lists a home, ARGS=--record writes docs/catalogue.md
	@$(BIN)/python tests/support/workspace/catalogue.py $(ARGS)

zoo-table: $(READY) ## rewrite the table in zoo/README.md from the result files
	@$(BIN)/pegboard zoo table zoo/README.md

surface: $(READY) ## rewrite tests/surface.txt, the public names and signatures of the core
	@$(BIN)/python tests/support/workspace/surface.py

schema: $(READY) ## write the JSON Schema by which editors complete and check the files in configs/
	@$(BIN)/pegboard schema -o configs/pegboard.schema.json

known-parts: $(READY) ## rewrite the core's list of which plugin offers which part
	@$(BIN)/python tests/support/workspace/known_parts.py

bench: .venv-bench/.ready ## train the same in every framework, side by side, an hour or two; ARGS="cnn --rounds 3" chooses
	@.venv-bench/bin/python benchmarks/side_by_side.py $(ARGS)
	@.venv-bench/bin/python benchmarks/report.py --docs docs/performance.md --readme README.md

bench-small: $(READY) ## our loop beside hand-written ones, times and counts, in a minute
	@$(BIN)/python benchmarks/steps.py $(ARGS)

families: $(READY) ## the models of every plugin beside the same modules in a hand-written loop, five minutes
	@$(BIN)/python benchmarks/families.py $(ARGS)

start: $(READY) ## time the first step of a run, and what 500 more plugins add to a command
	@$(BIN)/python benchmarks/start.py $(ARGS)

growth: $(READY) ## draw how time and memory of a step grow; ARGS="--compiled" adds the compiled step
	@$(BIN)/python benchmarks/growth.py $(ARGS)

clean: ## remove .venv, dist and what tools leave behind; runs are kept
	rm -rf .venv .venv-bench dist build site htmlcov .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp for each step, so that a changed plugin does not fetch torch again.
.venv/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Pegboard needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12 ..." % v[:2])'
	@echo "==> Making .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.torch: .venv/.made constraints.txt
	@echo "==> Installing $(TORCH), the largest download"
	@$(PIP) install "$(TORCH)"
	@touch $@

.venv/.tools: .venv/.torch constraints.txt requirements-dev.txt
	@echo "==> Installing the tools that build and test"
	@$(PIP) install -c constraints.txt -r requirements-dev.txt
	@touch $@

$(READY): .venv/.tools constraints.txt $(addsuffix /pyproject.toml,$(PROJECTS))
	@echo "==> Installing $(words $(PROJECTS)) projects and what they depend on: $(PROJECTS)"
	@$(PIP) install -c constraints.txt --no-build-isolation $(addprefix -e ./,$(PROJECTS))
	@touch $@
	@echo "==> Ready: $(BIN)/pegboard"

# The side-by-side has an environment of its own: its peers bring a hundred packages and pin old ones.
# What the projects need is installed by the same constraints, then the peers one by one.
.venv-bench/.torch: constraints.txt
	@echo "==> Making .venv-bench with $(TORCH)"
	@$(PYTHON) -m venv --clear .venv-bench
	@$(BENCH_PIP) install "$(TORCH)"
	@touch $@

.venv-bench/.ready: .venv-bench/.torch benchmarks/install.py $(addsuffix /pyproject.toml,$(PROJECTS))
	@echo "==> Installing the projects, then the frameworks they are compared with"
	@$(BENCH_PIP) install -c constraints.txt hatchling editables
	@$(BENCH_PIP) install -c constraints.txt --no-build-isolation $(addprefix -e ./,$(PROJECTS))
	@.venv-bench/bin/python benchmarks/install.py
	@touch $@
