# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
TREE := $(VENV)/typecheck

.DEFAULT_GOAL := help
.PHONY: help setup run test lint dist docs bench

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort | expand -t 14

setup: $(STAMP)  ## create .venv and install everything the targets below need

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: $(STAMP)  ## the main job: DeepSeek-R1 prefill on copper and on photons, beside the study
	$(BIN)/xla-cost demo

test: $(STAMP)  ## the whole test suite
	$(BIN)/python -m pytest -q -n auto --dist loadfile

lint: $(STAMP) $(TREE)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd $(TREE) && ../bin/mypy --config-file $(CURDIR)/pyproject.toml xla_cost $(CURDIR)/scripts

dist: $(STAMP)  ## build sdist and wheel into dist/, install the wheel where nothing is, run it
	$(BIN)/python scripts/check_wheel.py --keep dist

docs: $(DOCS_STAMP) $(TREE)  ## build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

bench: $(STAMP)  ## every speed that was promised, beside its floor or its peer
	$(BIN)/python benchmarks/run.py

# mypy and mkdocstrings cannot follow the package-dir mapping, so show them the tree as installed
.PHONY: $(TREE)
$(TREE):
	@rm -rf $@/xla_cost && mkdir -p $@/xla_cost
	@ln -s $(CURDIR)/xla_cost/* $(CURDIR)/models $(CURDIR)/hardware $@/xla_cost/
