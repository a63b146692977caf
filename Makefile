# `make` alone lists the targets. Each builds .venv itself, again only when the pins change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
unexport PYTHONDONTWRITEBYTECODE # the tests start hundreds of processes, which would each compile pairbus anew

# Each pytest adds what it skipped and why (tests/conftest.py); a target shows all of it at its end.
export PAIRBUS_SKIPPED := build/skipped.txt
FORGET_SKIPPED = mkdir -p build && rm -f $(PAIRBUS_SKIPPED)
TELL_SKIPPED = if test -s $(PAIRBUS_SKIPPED); then echo "Not tested here:"; sed 's/^/  /' $(PAIRBUS_SKIPPED); \
  else echo "No test was skipped."; fi

.DEFAULT_GOAL := help
.PHONY: help demo test package interop check format bench chaos mutants docs diagrams pins clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "pairbus needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all]' --group dev
	@touch $@

demo: $(INSTALLED) ## Run a shop through a kill -9 of its broker, and account for every order
	@$(BIN)/pairbus demo

test: $(INSTALLED) ## Run the tests
	@$(FORGET_SKIPPED)
	$(BIN)/pytest -n auto tests/unit/core --cov=pairbus.core --cov-branch --cov-fail-under=100
	$(BIN)/pytest -n auto tests/unit --ignore=tests/unit/core
	$(BIN)/pytest -n 8 tests/contract # which wait for the SDK more than they work
	$(BIN)/pytest -n 8 tests/client # likewise
	$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder tests/spark # one session per worker, which its tests share
	-$(BIN)/python -m tests.browser.chromium # installs one where there is none, if that can be done
	$(BIN)/pytest -n 2 --dist loadfile tests/browser
	@$(TELL_SKIPPED)
	@echo "Clients and brokers that are not ours (Qpid Proton, Node.js, RabbitMQ) have tests of their own: make interop"

package: $(INSTALLED) ## Build the wheel and the sdist, and install them with each extra in a clean environment
	$(BIN)/pytest -s tests/package

interop: $(INSTALLED) ## Test with clients and brokers that are not ours (Qpid Proton, Node.js, RabbitMQ), where they can be had
	@$(FORGET_SKIPPED)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group interop
	-cd tests/interop/node && npm install --silent --no-audit --no-fund --no-package-lock
	-$(BIN)/python -m tests.interop.rabbit # installs RabbitMQ where there is none, if that can be done
	$(BIN)/pytest tests/interop
	@$(TELL_SKIPPED)

check: $(INSTALLED) ## Lint, type-check, check the import rules and the generated diagram
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

format: $(INSTALLED) ## Put the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## Measure, side by side, as ratios of one run
	$(BIN)/python -m bench.simulation
	$(BIN)/python -m bench.walks
	$(BIN)/python -m bench.amqp_codec
	$(BIN)/python -m bench.store
	$(BIN)/python -m bench.filters
	$(BIN)/python -m bench.broker
	$(BIN)/python -m bench.broker_limits
	$(BIN)/python -m bench.client
	$(BIN)/python -m bench.topics
	$(BIN)/python -m bench.syphon
	$(BIN)/python -m bench.spark_syphon
	$(BIN)/python -m bench.ledger
	$(BIN)/python -m bench.native

chaos: $(INSTALLED) ## The long proofs: 10,000 simulated worlds, 200 kills of the broker, 1,000,000 damaged frames, 2,000 slow clients, kills of syphons and of Spark, 20 hostile minutes
	$(BIN)/pairbus simulate --seeds 10000
	$(BIN)/pytest -s tests/chaos

mutants: $(INSTALLED) ## Mutate the rules and see whether the tests notice
	rm -rf mutants
	$(BIN)/mutmut run
	$(BIN)/mutmut results

docs: $(INSTALLED) diagrams ## Build the documentation into site/
	$(BIN)/sphinx-build -W --keep-going -b html docs site

diagrams: $(INSTALLED) ## Draw the generated parts of the documentation again
	$(BIN)/python docs/generate.py

pins: ## Resolve every dependency again and write constraints.txt
	rm -rf build/pins && $(PYTHON) -m venv build/pins
	build/pins/bin/python -m pip install --quiet --upgrade pip
	build/pins/bin/python -m pip install --quiet --editable '.[all]' --group dev --group interop
	build/pins/bin/python -m pip freeze --all --exclude-editable --exclude setuptools > build/pins/frozen
	{ echo "# Every version that pairbus is built and tested with. Written by 'make pins'."; cat build/pins/frozen; } > constraints.txt
	rm -rf build/pins

clean: ## Remove everything that make has built
	rm -rf $(VENV) build dist site mutants .coverage .hypothesis .pytest_cache .ruff_cache .import_linter_cache
