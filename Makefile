# make demo        a model from a revision to a promoted service, on this machine; CANARY=1 adds a canary that fails
# make test        every tier of tests; TIER=unit runs one: unit, contracts, dags, cluster, local, or a folder of tests
# make test-vllm   the real vLLM on CPU behind the real Triton: an environment of 3.4 GB, made in minutes (requirements/README.md)
# make check       format, lint, types, import rules, unit tests; make lint and make types run parts of it
# make docs        the documentation site, in .slipway/docs/site
# make wheel       the slipway command as a wheel, in .slipway/wheel
# make chart       the Helm chart of what a cluster needs, in .slipway/chart: needs kubectl (docs/cluster-setup.md)
# make images      the CPU images with Docker's buildx, and a check of each (docs/cluster-setup.md)
# make kind        a cluster of kind with registry, S3, Hub and Airflow, and a release in it: needs Docker (docs/cluster-setup.md)
# make kind-down   remove it
# make bench       the benchmarks that need no stack, and their goals; make bench-full: all of them, with files of 4 GB
# make gpu-check   what this machine can run of the GPU paths; GPU_PYTHON names a Python with CUDA (tests/gpu/README.md)
# make up          start the embedded stack alone; HUB=https://huggingface.co lets its releases come from there
# make down        stop it and everything it started
PYTHON ?= python3
ENVS := .slipway/envs
LAPTOP := local airflow tasks triton front
BEGAN := $(shell date +%s.%N)
GPU_PYTHON ?= $(ENVS)/modelopt/bin/python
# Each is checked by itself, with its own folder on the path: Triton requires every model to be a model.py.
SCRIPTS := $(wildcard model_repository_templates/*/*/1/model.py) images/triton-cpu/install_triton.py

.PHONY: demo test test-vllm check lint types docs wheel chart images kind kind-down bench bench-full gpu-check up down status lock format clean

demo:
	@$(PYTHON) -m local.environments $(LAPTOP) --then -m demo --began $(BEGAN) $(if $(CANARY),--canary)

up:
	@$(PYTHON) -m local.environments $(LAPTOP) --then -m local up $(if $(HUB),--hub $(HUB))

down:
	@if [ -x $(ENVS)/local/bin/python ]; then $(ENVS)/local/bin/python -m local down; fi

status: environments
	@$(ENVS)/local/bin/python -m local status

test:
	@$(PYTHON) -m tests $(TIER)

test-vllm:
	@$(PYTHON) -m tests vllm

bench bench-full: environments dev clients peers
	@$(ENVS)/local/bin/python -m bench $(if $(findstring full,$@),--full)

check: lint types
	@$(PYTHON) -m tests unit contracts

lint: dev
	@$(ENVS)/dev/bin/ruff format --check .
	@$(ENVS)/dev/bin/ruff check .

# beside each other, each with a cache of its own, so that none writes over another's
types: environments dev
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types-tasks types-local types-airflow types-scripts types-layers

.PHONY: types-tasks types-local types-airflow types-scripts types-layers
MYPY = $(ENVS)/dev/bin/mypy --cache-dir .mypy_cache/$@ --python-executable $(ENVS)

types-tasks:
	@$(MYPY)/tasks/bin/python slipway/tasks

types-local:
	@$(MYPY)/local/bin/python --follow-imports silent slipway/cli local demo bench

types-airflow:
	@$(MYPY)/airflow/bin/python slipway/airflow plugins/slipway_plugin.py dags

types-scripts:
	@for script in $(SCRIPTS); do MYPYPATH=$$(dirname $$script) $(MYPY)/triton/bin/python $$script || exit 1; done

types-layers:
	@$(ENVS)/dev/bin/lint-imports

docs: environments
	@$(PYTHON) -m local.environments docs
	@rm -rf .slipway/docs
	@$(ENVS)/local/bin/python docs/build_pages.py .slipway/docs/pages
	@$(ENVS)/docs/bin/mkdocs build --quiet

wheel: dev
	@rm -rf .slipway/wheel
	@$(ENVS)/uv/bin/uv build --quiet --wheel --out-dir .slipway/wheel
	@rm -rf build slipway_models.egg-info
	@ls .slipway/wheel/*.whl

chart:
	@$(PYTHON) k8s_manifests/chart/package.py .slipway/chart

images:
	@docker buildx bake --load
	@$(PYTHON) images/check.py

kind:
	@PYTHON=$(PYTHON) local/kind/up.sh

kind-down:
	@local/kind/down.sh

gpu-check: $(if $(filter $(ENVS)/%,$(GPU_PYTHON)),modelopt)
	@$(GPU_PYTHON) -m tests.gpu

.PHONY: environments dev modelopt clients peers
environments:
	@$(PYTHON) -m local.environments $(LAPTOP)

dev modelopt clients peers:
	@$(PYTHON) -m local.environments $@

lock:
	@$(PYTHON) -m local.environments --lock

format: dev
	@$(ENVS)/dev/bin/ruff check --fix .
	@$(ENVS)/dev/bin/ruff format .

clean: down
	@for stack in .slipway/test-stacks/*/; do \
	  if [ -d "$$stack" ]; then $(ENVS)/local/bin/python -m local down --folder "$$stack"; fi; done
	@rm -rf .slipway
