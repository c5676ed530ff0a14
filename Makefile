# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test lint

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
	$(BIN)/python -m pytest -q

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy cannot follow the package-dir mapping, so show it the tree as installed
	@rm -rf $(VENV)/typecheck && mkdir -p $(VENV)/typecheck/xla_cost
	@ln -s $(CURDIR)/xla_cost/* $(CURDIR)/models $(CURDIR)/hardware $(VENV)/typecheck/xla_cost/
	cd $(VENV)/typecheck && ../bin/mypy --config-file $(CURDIR)/pyproject.toml xla_cost $(CURDIR)/scripts
