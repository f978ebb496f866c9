# The project's verbs. `make` alone prints them.
PYTHON ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.7
STAMP := .venv/.complete

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-live test-torch check docs web soak soak-short bench reproduce lock system-packages clean
MINUTES ?= 60
TORCH ?= torch

help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv and install everything into it

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "crowdml needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 setup"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

demo: setup  ## Watch a crowd learn handwritten digits (half a minute)
	$(BIN)/crowdml demo

test: setup  ## Run the tests (at most 10 minutes)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not live"

test-live: setup  ## Run the slower tests: real servers and devices, killed, starved and lied to (ten minutes)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m live

test-torch: setup  ## Run the tests that need PyTorch, in an environment of their own (a large download on Linux)
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	$(BIN)/uv pip install --quiet --python .venv-torch/bin/python -r requirements.lock
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --no-deps -e .
	.venv-torch/bin/python -m pytest -q tests/models/adapters/test_torch_models.py

soak-short: setup  ## Kill and disturb a real server under a busy crowd (five minutes)
	$(BIN)/python -m tests.soak.run --minutes 4
	$(BIN)/python -m tests.soak.run --minutes 1 --postgres

soak: setup  ## The same for as long as you like: make soak MINUTES=60
	$(BIN)/python -m tests.soak.run --minutes $(MINUTES)

check: setup  ## Check format, lint, types, layers and generated documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m docs.generate --check
	$(BIN)/python web/build.py --check

web: setup  ## Build the browser device from web/ into the server's static files
	$(BIN)/python web/build.py

docs: setup  ## Write the generated pages anew: reference, and papers from results/
	$(BIN)/python -m docs.generate

bench: setup  ## Measure the engine against a plain NumPy loop and a C loop; samplers, ledger and local solves
	$(BIN)/python benchmarks/simulation/bench.py
	$(BIN)/python benchmarks/simulation/native.py
	$(BIN)/python benchmarks/samplers/bench.py
	$(BIN)/python benchmarks/ledger/bench.py
	$(BIN)/python benchmarks/admm/bench.py
	$(BIN)/python benchmarks/own_models/bench.py

reproduce: setup  ## Reproduce all figures of the papers into reproduced/ (an hour or more; not external/, which takes hours)
	@mkdir -p reproduced
	@for id in $$($(BIN)/crowdml reproduce | cut -d ' ' -f 1 | grep -v ^external/); do \
	  name=$$(echo $$id | tr / -); \
	  $(BIN)/crowdml reproduce $$id --plot reproduced/$$name.png --json reproduced/$$name.json || exit 1; \
	done

lock: setup  ## Resolve requirements.lock anew from pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-emit-index-url --no-annotate \
	  --custom-compile-command "make lock" --group dev --extra all pyproject.toml -o requirements.lock

system-packages:  ## Install what some tests need beyond Python (Debian; as root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends caddy chromium strace

clean:  ## Remove the environment and caches
	rm -rf .venv .venv-torch web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
