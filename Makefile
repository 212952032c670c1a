# Regard. Each target makes .venv by itself, from nothing but Python, git and make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

# Exact versions, for what is installed and for what builds the package: pip 25.3 gave these two names. A relative path,
# because pip splits them at spaces.
PINS   := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1

FAST := not slow and not gpu and not browser
FULL := not gpu

.DEFAULT_GOAL := help
.PHONY: help setup constraints demo test test-all test-seeds test-gpu check format bench docs clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY)  ## make .venv with Regard and its tools in it
	@echo "$(VENV) is ready"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 5))' || { \
	  echo "Regard needs Python 3.11.5 or newer, and '$(PYTHON)' is not: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3.11" >&2; \
	  exit 1; }
	@echo "setting up $(VENV) (once; a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PINS) $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# One file for every system and Python, with markers; what it has stays while it fits (UPGRADE=1 takes the newest). It
# needs no environment that the old pins have to give. Not written: CUDA's libraries, of which each build of torch names
# its own versions, and what is for systems without threads.
constraints:  ## write constraints.txt anew, from pyproject.toml and what builds the package
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	@printf 'hatchling\neditables\n' | $(BIN)/uv pip compile pyproject.toml - --all-extras --universal \
	  --python-version 3.11.5 $(if $(UPGRADE),--upgrade) --no-annotate --no-header --quiet -o constraints.txt >/dev/null
	@{ echo '# The exact versions Regard was tested with, for Python 3.11 to 3.14 on Linux, Windows and macOS 14 (arm64).'; \
	  echo '# `make setup` installs these, `make constraints` writes them; pyproject.toml says what Regard needs.'; \
	  grep -v -e '^#' -e '^nvidia-' -e '^cuda-' -e "== 'emscripten'" -e ">= '3.15'" constraints.txt; } > constraints.new
	@mv constraints.new constraints.txt

demo: $(READY)  ## train a Transformer from scratch and see what it attends to, in minutes
	@$(BIN)/regard demo

# Shapes are checked at run time by a hook that takes most of the time of what it checks: in attention, in kernels and in
# a case a model (the mark `shapes`). The rest runs without it, and so do the compile tests, whose fullgraph it breaks.
# The hook is a process's own, so these are two calls. One thread a process, a process a core, which takes tests from
# another when its own are done; without the hook one more (tests/conftest.py), since those tests wait for children and
# clocks: PYTEST_XDIST_AUTO_NUM_WORKERS=2 sets another number. Bytecode is written, whatever the shell says: a hundred
# processes import the same.
CHECKED := tests/attention tests/kernels tests/models
# Whatever draws begins with this seed, Hypothesis too: a test that passes passes again. An empty one draws a seed.
export REGARD_SEED ?= 0
PYTEST  := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal

test: $(READY)  ## the tests, about six minutes on two cores
	@status=0; \
	$(PYTEST) -m "$(FAST) and not compile and shapes$(if $(DRAWS), and draws)" $(CHECKED) || status=1; \
	REGARD_NO_TYPECHECK=1 $(PYTEST) -m "$(FAST) and (compile or not shapes)$(if $(DRAWS), and draws)" || status=1; \
	exit $$status

# Each seed is printed before its tests, and those with which a test failed once more at the end.
N := 20
test-seeds: $(READY)  ## the tests that draw random numbers, with N=20 new seeds
	@failed=; for i in $$(seq $(N)); do \
	  seed=$$($(BIN)/python -c 'import random; print(random.SystemRandom().randrange(2**31))'); \
	  echo "== seed $$i of $(N): REGARD_SEED=$$seed"; \
	  $(MAKE) --no-print-directory test REGARD_SEED=$$seed DRAWS=1 || failed="$$failed $$seed"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed with REGARD_SEED of:$$failed" >&2; exit 1; fi; \
	echo "passed with $(N) seeds"

test-all: $(READY)  ## the tests in full, an hour and a quarter on two cores
	@$(PYTEST) -m "$(FULL) and not compile and shapes" $(CHECKED)
	@REGARD_NO_TYPECHECK=1 $(PYTEST) -m "$(FULL) and (compile or not shapes) and not browser"
	@REGARD_NO_TYPECHECK=1 $(PYTEST) -m "$(FULL) and browser"

# No hook: compiled and captured code cannot have it. Most of the time is spent compiling kernels, by processors.
test-gpu: $(READY)  ## the tests that need a GPU
	@REGARD_NO_TYPECHECK=1 $(PYTEST) --maxprocesses 6 -m gpu

check: $(READY)  ## format, lint, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(READY)  ## write the format that check wants
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY)  ## attention, training and decoding against their peers, on this machine
	@$(BIN)/regard bench attention
	@$(BIN)/regard bench training
	@$(BIN)/regard bench decoding

docs: $(READY)  ## the documentation, in docs/_build/html
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:  ## remove .venv and everything built
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
