# `make demo` diagnoses a training job with a bottleneck on this machine; `make test` runs the test suite. Both make .venv first.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
PYTHONS := python3 python3.13 python3.12 python3.11 python3.10
PYTHON ?= $(shell for p in $(PYTHONS); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2> /dev/null && echo $$p && break; done)

.PHONY: help demo test lint types wheel clean

help:
	@echo "make demo    start a training job that is slow for a reason, attach to it, print the verdict, write a report"
	@echo "make test    run the test suite"
	@echo "make lint    ruff          make types   mypy          make wheel   build dist/*.whl"
	@echo "make clean   remove $(VENV) and everything that was built"

demo: $(VENV)/.ready
	@$(BIN)/python examples/demo.py

test: $(VENV)/.ready
	@# What watches a job is run alone: whatever else ran would be seen. Of the rest, the long ones come first in the
	@# alphabet; otherwise the files of few tests, which are long, would come last.
	@$(BIN)/python -m pytest -m alone; alone=$$?; \
		$(BIN)/python -m pytest -m "not alone" --numprocesses 2 --dist loadfile \
			--no-loadscope-reorder && exit $$alone

lint: $(VENV)/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .

types: $(VENV)/.ready
	@$(BIN)/mypy

wheel: $(VENV)/.ready
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist perfdoctor.egg-info perfdoctor-report.html .mypy_cache .pytest_cache .ruff_cache

# The file stands for a complete environment: an installation that was interrupted starts anew.
$(VENV)/.ready: requirements-dev.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.10 or newer found (looked for: $(PYTHONS))." >&2; \
		echo "Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
	@echo "Making $(VENV) with $$($(PYTHON) --version). PyTorch is large: the first time takes some minutes."
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "Python's venv module is missing or broken; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@# First pip itself: an older one shows nothing during the minute in which it unpacks PyTorch.
	@$(PIP) --quiet --constraint requirements-dev.txt pip
	@$(PIP) --progress-bar on --requirement requirements-dev.txt
	@# Twice quiet: setuptools would warn of the folders that it is told to install.
	@$(PIP) --quiet --quiet --no-deps --no-build-isolation --editable .
	@touch $@
