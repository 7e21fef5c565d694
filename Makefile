# make demo    a model from a revision to a promoted service, on this machine
# make test    every tier of tests
# make check   format, lint, types, import rules, unit tests
# make up      the embedded stack alone      make down    end it, leave no process
PYTHON ?= python3
ENVS := .slipway/envs
# each runs by itself with its own folder on the path, and Triton wants every model to be a model.py
SCRIPTS := $(wildcard model_repository_templates/*/*/1/model.py) images/triton-cpu/install_triton.py

.PHONY: demo test check up down status lock format clean

demo: environments
	@$(ENVS)/local/bin/python -m local demo

up: environments
	@$(ENVS)/local/bin/python -m local up

down:
	@if [ -x $(ENVS)/local/bin/python ]; then $(ENVS)/local/bin/python -m local down; fi

status: environments
	@$(ENVS)/local/bin/python -m local status

test: environments dev modelopt
	@$(PYTHON) -m tests

check: environments dev
	@$(ENVS)/dev/bin/ruff format --check .
	@$(ENVS)/dev/bin/ruff check .
	@$(ENVS)/dev/bin/mypy --python-executable $(ENVS)/tasks/bin/python tasks
	@$(ENVS)/dev/bin/mypy --python-executable $(ENVS)/local/bin/python local cli bench
	@$(ENVS)/dev/bin/mypy --python-executable $(ENVS)/airflow/bin/python plugins dags
	@for script in $(SCRIPTS); do MYPYPATH=$$(dirname $$script) $(ENVS)/dev/bin/mypy \
	  --python-executable $(ENVS)/triton/bin/python $$script || exit 1; done
	@$(ENVS)/dev/bin/lint-imports
	@$(PYTHON) -m tests unit contracts

.PHONY: environments dev modelopt
environments:
	@$(PYTHON) -m local.environments airflow tasks triton local

dev modelopt:
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
