# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv themselves.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# A second interpreter to test on, where the machine has one (also found through pyenv); without the slow statistics, which
# do not depend on it.
SECOND := $(shell for p in python3.13 $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.13.*/bin/python3.13 2>/dev/null); do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
# One BLAS thread per process: the suite is parallel over tests, and timings are comparable.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
PYTEST_ARGS ?= -q -n auto

.PHONY: demo test test-second lint docs numbers tutorials build clean

demo: .venv/.ready
	$(BIN)/latentdag demo --out demo-output

test: .venv/.ready
	$(BIN)/python -m pytest $(PYTEST_ARGS)
	@if [ -n "$(SECOND)" ]; then $(MAKE) --no-print-directory test-second; \
	else echo "No Python 3.13 here: the tests ran on $$($(BIN)/python --version) only."; fi

test-second: .venv-3.13/.ready
	.venv-3.13/bin/python -m pytest $(PYTEST_ARGS) -m "not slow"

lint: .venv/.ready-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in docs/_build/html; warnings are errors. Experiments without a committed run are run now, small.
docs: .venv/.ready
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Numbers in the README and in docs, from what benchmarks and experiments wrote.
numbers: .venv/.ready
	$(BIN)/python docs/quoted.py

# Runs the tutorials on real data again, in place; LATENTDAG_DATA names the folder with the data.
tutorials: .venv/.ready
	$(BIN)/python docs/_ext/execute.py

build: .venv/.ready
	$(BIN)/python -m build

clean:
	rm -rf .venv .venv-3.13 build dist demo-output docs/_build docs/gallery src/*.egg-info

# $(call install,VENV,INTERPRETER,GROUPS): an editable install with all that the tests and the demo need.
define install
	@test -n "$(2)" || { echo "latentdag needs Python 3.11 or newer: none found; set PYTHON=/path/to/python"; exit 1; }
	$(2) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(1)/bin/python -m pip install --quiet --editable '.[all]' $(foreach g,$(3),--group $(g))
endef

.venv/.ready: pyproject.toml
	$(call install,.venv,$(PYTHON),test docs)
	$(BIN)/python -m pip install --quiet build
	@touch $@

.venv/.ready-lint: .venv/.ready
	$(BIN)/python -m pip install --quiet --group lint
	@touch $@

.venv-3.13/.ready: pyproject.toml
	$(call install,.venv-3.13,$(SECOND),test)
	@touch $@
