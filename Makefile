# Two commands are all a newcomer needs: `make run` and `make test`.
#
#   PORT          where the console and the API listen (default 8000)
#   HOST          the address they listen on (default 127.0.0.1)
#   PYTHON        the Python that creates .venv (3.11 or newer)
#   TORCH         which torch to install (default in scripts/launch/packages.py); the README says how to choose
#   TORCH_INDEX   an extra package index to take torch from ("none" = never look for one)
#   CASES         how many cases make fuzz tries of each kind (default 100000)
#   ONLY          which of them, as pytest's -k takes it
PYTHON ?= python3
PORT ?= 8000
HOST ?= 127.0.0.1
TORCH ?=
TORCH_INDEX ?=
CASES ?= 100000
ONLY ?=
export PORT HOST TORCH TORCH_INDEX

VENV_PYTHON := .venv/bin/python

.PHONY: run setup test test-long quick fuzz check docs format wire schema lock bench release clean help

run: ## Set everything up, start the platform and the engine, print where to go
	@$(PYTHON) -m scripts.bootstrap run
	@exec $(VENV_PYTHON) -m scripts.run

setup: ## Only set up: virtual environment, packages, console build
	@$(PYTHON) -m scripts.bootstrap run

test: ## Checks, units, platform on PostgreSQL + Redis and on SQLite, console, end to end
	@$(PYTHON) -m scripts.bootstrap test
	@exec $(VENV_PYTHON) -m scripts.full_run $(TESTS)

test-long: ## What takes too long for every change: soaks, kill tests at length, full grids, every fuzzer
	@$(PYTHON) -m scripts.bootstrap test
	@exec $(VENV_PYTHON) -m scripts.full_run --long

quick: ## Static checks, and for about two minutes the tests of what changed against main (BASE=…)
	@$(PYTHON) -m scripts.bootstrap test
	@exec $(VENV_PYTHON) -m scripts.quick

fuzz: ## Every fuzzer in full: CASES of each kind; figures go to benchmarks/results/fuzz.jsonl
	@$(PYTHON) -m scripts.bootstrap test
	@LORIKEET_FUZZ_CASES=$(CASES) exec $(VENV_PYTHON) -m pytest --timeout=14400 -k "$(ONLY)" tests/fuzz

check: ## Static checks only: lint, types, import directions, generated files
	@$(PYTHON) -m scripts.bootstrap test
	@exec $(VENV_PYTHON) -m scripts.check

docs: ## Build the documentation and serve it on http://127.0.0.1:8001
	@$(PYTHON) -m scripts.bootstrap test
	@exec $(VENV_PYTHON) -m mkdocs serve --dev-addr 127.0.0.1:8001

format: ## Format Python and the console, sort imports, fix what the linters can fix
	@$(VENV_PYTHON) -m ruff check --fix .
	@$(VENV_PYTHON) -m ruff format .
	@$(VENV_PYTHON) -c "from scripts.launch.console import npm; npm('run', 'format')"

wire: ## Regenerate the protobuf modules from engine.proto
	@$(VENV_PYTHON) -m scripts.wire

schema: ## Regenerate frontend/openapi.json and the TypeScript client from the API
	@$(VENV_PYTHON) -m scripts.schema

lock: ## Pin the newest allowed versions into constraints.txt
	@$(PYTHON) -m scripts.lock

bench: ## Tokens per second and first-token times through the REST API
	@$(VENV_PYTHON) benchmarks/rest_throughput.py

release: ## Check, build and tag a release: make release VERSION=0.2.0 (DRY_RUN=1 only prints the steps)
	@$(VENV_PYTHON) -m scripts.release $(VERSION) $(if $(DRY_RUN),--dry-run)

clean: ## Remove what make created, except the data in var/
	rm -rf .venv frontend/node_modules frontend/dist var/setup .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
