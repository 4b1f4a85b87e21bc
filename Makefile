# The whole surface. `make test` and `make demo` do all their own set-up on a bare machine with Python 3.11+.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# How images are built and loaded. The defaults suit docker and kind.
IMAGE_PREFIX ?= sluice
IMAGE_TAG    ?= dev
BUILD ?= docker build
LOAD  ?= kind load docker-image

.PHONY: demo test e2e lint generate bench bench-control fidelity bench-kernels images gpu clean

$(READY): pyproject.toml .ci/constraints.txt $(wildcard engine/native/*)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Sluice needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	touch $@

test: $(READY)
	$(BIN)/sluice model tiny
	$(BIN)/python -m pytest tests

demo: $(READY)
	$(BIN)/python -m e2e.demo

e2e: $(READY)
	IMAGE_PREFIX='$(IMAGE_PREFIX)' IMAGE_TAG='$(IMAGE_TAG)' BUILD='$(BUILD)' LOAD='$(LOAD)' $(BIN)/python -m pytest e2e -x -s

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m sluice crds --check

generate: $(READY)
	$(BIN)/python -m sluice crds --write

bench: $(READY)
	$(BIN)/python -m tests.bench $(PARTS)

# Every autoscaling law on the tracks of the score: ten minutes on two cores. FULL=1: whole days, two to three
# hours; goes on where it stopped.
bench-control: $(READY)
	$(BIN)/python -m sluice_sim.tracks $(if $(FULL),--full)

# Does the simulator predict this machine's engine? About ten minutes; wants a quiet machine.
fidelity: $(READY)
	$(BIN)/python -m tests.bench.fidelity

images:
	$(BUILD) -t $(IMAGE_PREFIX)/operator:$(IMAGE_TAG) -f operator/Dockerfile .
	$(BUILD) -t $(IMAGE_PREFIX)/engine:$(IMAGE_TAG) -f engine/Dockerfile .

# On a machine with a GPU that has torch, triton, transformers and pytest already: no virtual environment, no network.
gpu:
	PYTHONPATH=operator:engine:kernels:. $(PYTHON) -m kernels.bench

clean:
	rm -rf $(VENV) .venv-vllm .mypy_cache .pytest_cache .ruff_cache .hypothesis
