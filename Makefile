# Everything runs from .venv, made with PYTHON (3.11 or newer): make demo PYTHON=python3.12 PORT=9000
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8080
WORKERS ?= 2
# How many tests run at once: most wait for servers, so a few more than there are cores.
JOBS ?= 3
PY := .venv/bin/python
NATIVE := $(wildcard service/scoring/*.c service/scoring/native/*.[ch] training/*.c)
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
# For the images, each optional: BASE, the base image; TORCH_INDEX, an index to take torch from.
BUILD_ARGS = $(foreach name,BASE TORCH_INDEX,$(if $($(name)),--build-arg $(name)="$($(name))"))

# Waiting torch threads else spin: on cores that others use too, a forward of 1 ms then takes 100.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup demo train metrics test lint types check-slow check-images images lock

help: ## what the targets do
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r what does; do printf '  %-18s %s\n' "$$what" "$$does"; done

setup: .venv/.installed ## makes .venv and installs everything, pinned; again only when pyproject.toml, the lock or C changes
	@:

.venv/.installed: pyproject.toml requirements.lock $(NATIVE)
	@"$(PYTHON)" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: '$(PYTHON)' is not Python 3.11 or newer with venv (found: $$("$(PYTHON)" --version 2>&1)); name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "installing into .venv (minutes, the first time)"
	@rm -f $@
	@$(PY) -c '' 2>/dev/null || "$(PYTHON)" -m venv --clear .venv
	@$(PIP) --requirement requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## trains v1 and v2 on MovieLens-100K if absent, serves both at 90/10 in the foreground (HOST, PORT, WORKERS)
	@exec $(PY) tools/demo.py --host "$(HOST)" --port "$(PORT)" --workers "$(WORKERS)"

train: setup ## the demo's training alone: artifacts/v1 and artifacts/v2, if absent
	@$(PY) tools/demo.py --only-train

metrics: setup ## their offline metrics, as a Markdown table
	@$(PY) tools/metrics_table.py artifacts/v1 artifacts/v2

test: lint types ## the gate: lint, types, tests (JOBS at once)
	@$(PY) -m pytest --numprocesses $(JOBS) --dist worksteal

lint: setup ## ruff, actionlint, shellcheck
	@$(PY) -m ruff check .
	@.venv/bin/actionlint -shellcheck .venv/bin/shellcheck
	@.venv/bin/shellcheck .ci/run

types: setup ## mypy, strict for service and training
	@$(PY) -m mypy

check-slow: setup ## the checks that take minutes: kills, load, seeds, images
	@$(PY) -m pytest -m slow

check-images: setup ## builds both images, trains and serves inside them (BASE, TORCH_INDEX)
	@$(PY) -m pytest -m slow tests/images

images: ## builds both images with docker (BASE, TORCH_INDEX)
	docker build $(BUILD_ARGS) -f Dockerfile.train -t twinrank-train .
	docker build $(BUILD_ARGS) -f Dockerfile.serve -t twinrank-serve .

lock: setup ## the lock files anew from pyproject.toml
	@$(PY) tools/lock.py
