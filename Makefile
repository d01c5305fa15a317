# Everything runs from .venv, made with PYTHON (3.11 or newer): make demo PYTHON=python3.12 HOST=0.0.0.0 PORT=9000
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8080
WORKERS ?= 2
PY := .venv/bin/python
SERVE_IMAGE ?= twinrank-serve
TRAIN_IMAGE ?= twinrank-train

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo train test lint types check-slow lock images

help: ## what the targets do
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

setup: .venv/.installed ## makes .venv and installs everything, pinned

.venv/.installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 11)' 2>/dev/null || { \
	  echo "make: $(PYTHON) is not Python 3.11 or newer with venv ($$($(PYTHON) --version 2>&1)); name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "installing into .venv (about two minutes the first time)"
	@rm -f $@
	@test -x $(PY) && $(PY) -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: setup ## trains v1 and v2 on MovieLens-100K if absent, serves both at 90/10 in the foreground
	@$(PY) tools/demo.py --host '$(HOST)' --port '$(PORT)' --workers '$(WORKERS)'

train: setup ## the demo's training alone: artifacts/v1 and artifacts/v2, if absent
	@$(PY) tools/demo.py --only-train

test: lint types ## the gate: lint, types, tests
	@$(PY) -m pytest

lint: setup ## ruff, actionlint, shellcheck
	@$(PY) -m ruff check .
	@.venv/bin/actionlint -shellcheck .venv/bin/shellcheck
	@.venv/bin/shellcheck .ci/run $(wildcard loadtests/*.sh)

types: setup ## mypy, strict for service and training
	@$(PY) -m mypy

check-slow: setup ## the tests marked slow: kills, load, images (minutes; the image tests need root)
	@$(PY) -m pytest -m slow

lock: setup ## regenerates the lock files from pyproject.toml
	@$(PY) tools/lock.py

images: ## builds both images with docker (TORCH_INDEX, BASE: see README.md)
	docker build $(foreach arg,BASE TORCH_INDEX,$(if $($(arg)),--build-arg $(arg)="$($(arg))")) -f Dockerfile.train -t $(TRAIN_IMAGE) .
	docker build $(foreach arg,BASE TORCH_INDEX,$(if $($(arg)),--build-arg $(arg)="$($(arg))")) -f Dockerfile.serve -t $(SERVE_IMAGE) .
