# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv themselves.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# A second interpreter to test on, where the machine has one (also found through pyenv); without what does not depend on it.
SECOND := $(shell for p in python3.13 $$(ls -d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.13.*/bin/python3.13 2>/dev/null); do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
# One BLAS thread per process: the suite is parallel over tests, and timings are comparable.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
# Installs leave compiling to the first import. Where nothing may be kept, every process of the suite would compile numpy,
# scipy and pandas again: four seconds of the seven that a command takes.
unexport PYTHONDONTWRITEBYTECODE
PYTEST_ARGS ?= -q -n auto --dist worksteal

.PHONY: demo test test-kernels test-second test-oldest test-newest lint docs numbers architecture tutorials build clean

demo: .venv/.ready
	$(BIN)/latentdag demo --out demo-output

# Tests whose verdicts rest on floating point run again under other BLAS kernels: what holds by luck of rounding on this
# processor shows here, and not at a user's.
KERNELS ?= Haswell Prescott
NUMERICAL := $(addprefix tests/,$(addsuffix .py,$(addprefix core/test_,linalg porq projection likelihood jacobian edge_estimates \
	evidence order_free) $(addprefix data/test_,moments adjust) $(addprefix identification/test_,identify reduce equivalence) \
	methods/test_hostile methods/test_noise core/test_noisy uncertainty/test_standard_errors uncertainty/test_prediction uncertainty/test_held_out \
	$(addprefix inference/test_,ranks membership dimension shared_targets control targets)))

# Tests of what may depend on the interpreter: doors for data, files, processes, faces.
INTERPRETER := $(addprefix tests/,$(addsuffix .py,$(addprefix data/test_,moments stream text loading bad_input fuzz \
	anndata_moments) $(addprefix faces/test_,cli estimator tl report) methods/test_options repository/test_layers))

test: .venv/.ready
	$(BIN)/python -m pytest $(PYTEST_ARGS)
	@if [ "$(origin PYTEST_ARGS)" = file ]; then $(MAKE) --no-print-directory test-kernels; fi
	@if [ -n "$(SECOND)" ]; then $(MAKE) --no-print-directory test-second; \
	else echo "No Python 3.13 here: the tests ran on $$($(BIN)/python --version) only."; fi

test-kernels: .venv/.ready
	@for kernel in $(KERNELS); do echo "OPENBLAS_CORETYPE=$$kernel:"; \
	OPENBLAS_CORETYPE=$$kernel $(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow" -k "not uniform and not cover" $(NUMERICAL) || exit 1; done

# Under the machine's own kernels: numpy 2.5.4 for Python 3.13 crashes under Haswell's in
# a plain product, (24, 333) @ (333, 9).
test-second: .venv-3.13/.ready
	env -u OPENBLAS_CORETYPE .venv-3.13/bin/python -m pytest $(PYTEST_ARGS) -m "not slow" $(INTERPRETER)

# The oldest versions that pyproject.toml admits. What came after them may call them deprecated: here that is no error.
test-oldest: .venv-oldest/.ready
	.venv-oldest/bin/python -m pytest $(PYTEST_ARGS) -m "not slow" -W ignore::DeprecationWarning

# The newest of everything, fetched anew every time; without lifelines, which holds pandas below 3.
test-newest:
	$(call install,.venv-newest,$(or $(SECOND),$(PYTHON)),[plot$(,)anndata$(,)big$(,)cli$(,)report$(,)datasets],--group test --upgrade --upgrade-strategy eager)
	.venv-newest/bin/python -m pytest $(PYTEST_ARGS) -m "not slow"

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

# The picture of the rooms and the walk of one fit, from the source.
architecture: .venv/.ready
	$(BIN)/python docs/architecture.py

# Runs the tutorials on real data again, in place; LATENTDAG_DATA names the folder with the data.
tutorials: .venv/.ready
	$(BIN)/python docs/_ext/execute.py

build: .venv/.ready
	$(BIN)/python -m build

clean:
	rm -rf .venv .venv-3.13 .venv-oldest .venv-newest build dist demo-output docs/_build docs/gallery src/*.egg-info

# $(call install,VENV,INTERPRETER,EXTRAS,OPTIONS): an editable install with these extras; options go to pip. Modules are
# compiled when they are first imported, as most never are.
define install
	@test -n "$(2)" || { echo "latentdag needs Python 3.11 or newer: none found; set PYTHON=/path/to/python"; exit 1; }
	test -x $(1)/bin/python || $(2) -m venv $(1)
	$(1)/bin/python -m pip install --quiet 'pip>=25.1'
	$(1)/bin/python -m pip install --quiet --no-compile --editable '.$(3)' $(4)
endef
, := ,

.venv/.ready: pyproject.toml
	$(call install,.venv,$(PYTHON),[all],--group test --group docs build)
	@touch $@

.venv/.ready-lint: .venv/.ready
	$(BIN)/python -m pip install --quiet --group lint
	@touch $@

.venv-3.13/.ready: pyproject.toml
	$(call install,.venv-3.13,$(SECOND),[all],--group test)
	@touch $@

.venv-oldest/.ready: pyproject.toml tests/floors.py
	mkdir -p .venv-oldest
	$(PYTHON) tests/floors.py > .venv-oldest/floors.txt
	$(call install,.venv-oldest,$(PYTHON),[all],--group test --constraint .venv-oldest/floors.txt)
	@touch $@
