# The project's verbs. `make` alone prints them.
PYTHON ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.7
STAMP := .venv/.complete
# Where Python is told to keep no compiled modules, each process that a test starts would compile JAX anew: two seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-live test-torch test-flower check docs site web soak soak-short bench bench-peers reproduce lock release system-packages clean
MINUTES ?= 60
# The versions that were tried; FLOWER=flwr takes the newest there is.
TORCH ?= torch==2.13.0
FLOWER ?= flwr==1.41.0
UPGRADE ?= --upgrade

help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Make .venv and install everything into it

$(STAMP): bootstrap.lock requirements.lock pyproject.toml src/crowdml/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "crowdml needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 setup"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bootstrap.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

demo: setup  ## Watch a crowd learn handwritten digits (half a minute)
	$(BIN)/crowdml demo

test: setup  ## Run the tests (eight to ten minutes on two quiet cores)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not live"

test-live: setup  ## Run the slower tests: real servers and devices, killed, starved and lied to (twenty minutes)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m live

test-torch: setup  ## Run the tests that need PyTorch, in an environment of their own (a large download on Linux)
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --require-hashes -r requirements.lock
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/uv pip install --quiet --python .venv-torch/bin/python --no-deps -e .
	.venv-torch/bin/python -m pytest -q tests/models/adapters/test_torch_models.py tests/models/adapters/test_torch_loops.py

test-flower: setup  ## Run a client of the released Flower as a device, in an environment of its own
	test -x .venv-flower/bin/python || $(PYTHON) -m venv .venv-flower
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python '$(FLOWER)'
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python --no-deps -e .
	.venv-flower/bin/python -m pytest -q tests/models/adapters/test_flower_client.py

soak-short: setup  ## Kill, cut off, lie to and starve the real thing; plant bugs that must be caught (docs/reference/soak.md: how long)
	$(BIN)/python -m tests.soak.short

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

site: setup  ## Build the documentation as a site in site/, which can be read from the folder
	$(BIN)/python -m docs.site.build

bench: setup  ## Measure the engine against a plain NumPy loop and a C loop; samplers, ledger and local solves
	$(BIN)/python benchmarks/simulation/bench.py
	$(BIN)/python benchmarks/simulation/native.py
	$(BIN)/python benchmarks/samplers/bench.py
	$(BIN)/python benchmarks/ledger/bench.py
	$(BIN)/python benchmarks/admm/bench.py
	$(BIN)/python benchmarks/own_models/bench.py

bench-peers: setup  ## Compare with Flower, pfl-research, FedJAX, Opacus and PyTorch, each in its own environment: make bench-peers CLAIM=fedavg
	$(BIN)/python -m benchmarks.peers.run $(CLAIM)

reproduce: setup  ## Run a small version of every figure of the papers into reproduced/ (minutes); TRIALS=1 for the real ones (hours)
	$(BIN)/crowdml reproduce --all --plot reproduced $(if $(TRIALS),--trials $(TRIALS) --record reproduced --resume,--quick)

lock: setup  ## Resolve all lock files anew from pyproject.toml, with the hash of every file
	$(BIN)/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --no-emit-index-url --no-annotate --generate-hashes \
	  --custom-compile-command "make lock" --group dev --group site --extra all --extra ray pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --generate-hashes \
	  --custom-compile-command "make lock" --constraint requirements.lock --group build \
	  --extra server --extra postgres --extra onnx pyproject.toml -o container.lock
	echo uv==$(UV_VERSION) | $(BIN)/uv pip compile --quiet --universal --no-emit-index-url --no-annotate --generate-hashes \
	  --custom-compile-command "make lock" - -o bootstrap.lock

release: setup  ## Build a signed release into dist: make release KEY=~/.ssh/id_ed25519
	$(BIN)/python -m release.build $(if $(KEY),--key $(KEY))

system-packages:  ## Install what some tests need beyond Python (Debian; as root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends caddy chromium libfaketime openssh-client strace

clean:  ## Remove the environment and caches
	rm -rf .venv .venv-torch .venv-flower .venv-peers site web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
