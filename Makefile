# The commands people and CI share. A preset VENV or PYTHON is respected: `make check VENV=~/envs/forebay`.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
WORKERS ?= 2
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# An installation is up to date for this very folder and these very locks.
STATE = $(CURDIR) $(shell cat requirements.lock requirements-dev.lock pyproject.toml | cksum)
COMPILE = $(BIN)/python -m piptools compile --quiet --strip-extras --allow-unsafe --no-header \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.PHONY: help run setup test check lock

help:
	@echo "make run    start the whole platform and print one link to sign in (ARGS=... goes to 'forebay up')"
	@echo "make setup  install everything development needs into $(VENV)"
	@echo "make test   run the tests"
	@echo "make check  style, types, import contracts, migrations, deployment settings"
	@echo "make lock   pin the dependencies of pyproject.toml anew"

run: export FOREBAY_DATA ?= $(CURDIR)/.forebay
run: $(BIN)/python
	@test "$$(cat $(VENV)/.forebay-run 2>/dev/null)" = "$(STATE)" || { \
		$(PIP) install -r requirements.lock && \
		$(PIP) install --no-deps --no-build-isolation --editable . && \
		echo "$(STATE)" > $(VENV)/.forebay-run; }
	@exec $(BIN)/python -m forebay.cli.main up $(ARGS)

setup: $(BIN)/python
	@test "$$(cat $(VENV)/.forebay-dev 2>/dev/null)" = "$(STATE)" || { \
		$(PIP) install -r requirements-dev.lock && \
		$(PIP) install --no-deps --no-build-isolation --editable . && \
		echo "$(STATE)" | tee $(VENV)/.forebay-run > $(VENV)/.forebay-dev; }

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Forebay needs Python 3.11: make $@ PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# Tests of a whole platform kill and measure what needs every core, so they come last and alone.
# pytest exits with 5 where ARGS leave one of the two halves without a test.
test: export OMP_NUM_THREADS = 1
test: setup
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not platform" $(ARGS); others=$$?; \
	$(BIN)/python -m pytest -q -m platform $(ARGS); whole=$$?; \
	for code in $$others $$whole; do test $$code -eq 0 -o $$code -eq 5 || exit $$code; done

check: export FOREBAY_SECRET_KEY = $(shell od -An -N48 -tx1 /dev/urandom | tr -d ' \n')
check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	FOREBAY_DEBUG=false FOREBAY_URL=https://forebay.example.org FOREBAY_ALLOWED_HOSTS=forebay.example.org \
		$(BIN)/python manage.py check --deploy --fail-level WARNING

# A CPU build of PyTorch names itself 2.13.0+cpu; everybody else needs the public version.
lock: setup
	$(COMPILE) --extra dev --extra bench --output-file requirements-dev.lock pyproject.toml
	cp requirements-dev.lock requirements.lock
	$(COMPILE) --output-file requirements.lock pyproject.toml
	sed -i.old -e 's/+cpu$$//' requirements.lock requirements-dev.lock
	rm requirements.lock.old requirements-dev.lock.old
