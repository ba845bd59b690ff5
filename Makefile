# Each target works on a fresh clone: the first one called makes .venv and installs into it.
# Another Python: make PYTHON=python3.12 test.  Other test options: make test ARGS='-k rules'.

PYTHON ?= python3
WORKERS ?= 2
MINUTES ?= 10
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check soak lint docs links bench release format clean

INSTALLED := .venv/.installed
SPHINX := .venv/bin/python -m sphinx -q -W --keep-going -c docs -d build/doctrees

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: $(INSTALLED) ## compare all methods on handwritten digits with wrong labels (about a minute)
	.venv/bin/coteach demo $(ARGS)

test: $(INSTALLED) ## run the quick tests on WORKERS=2 processes (under three minutes)
	.venv/bin/python -m pytest -n $(WORKERS) -q $(ARGS)

check: lint docs ## run everything that CI runs: lint, docs, quick and slow tests (eight minutes)
	.venv/bin/python -m pytest -n $(WORKERS) -q -m "not soak" $(ARGS)

soak: $(INSTALLED) ## run the tests that take too long for `make test`, and random damage for MINUTES=10 (twenty minutes)
	.venv/bin/python -m pytest -m soak -q $(ARGS)
	OMP_NUM_THREADS=1 PYTHONPATH=src:tests .venv/bin/python tests/random_damage.py --minutes $(MINUTES)

lint: $(INSTALLED) ## check style, format and types
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/pyrefly check --python-interpreter-path .venv/bin/python

docs: $(INSTALLED) ## build the documentation, warnings and broken links being errors (half a minute)
	.venv/bin/python docs/fill.py
	$(SPHINX) -b html . build/docs
	@echo "The documentation is build/docs/index.html"

links: $(INSTALLED) ## ask the network whether the addresses in the documentation still exist
	$(SPHINX) -b linkcheck . build/links

bench: $(INSTALLED) ## time an epoch against plain loops (two minutes on two cores)
	.venv/bin/python benchmarks/bench.py $(ARGS)

release: $(INSTALLED) ## build wheel and sdist, and try them in an empty environment (three minutes)
	mkdir -p build
	PYTHON=$(PYTHON) .ci/smoke

format: $(INSTALLED) ## mend what can be mended by machine
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

clean: ## remove .venv and the tools' caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and with pip's progress bars, because it is nearly all of the download. The stamp
# goes before and comes back last, so that an interrupted installation is begun again from nothing.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coteach needs Python 3.11 or newer; try: make PYTHON=python3.12 ...")'
	@echo "Installing into .venv: one or two minutes, longer where CUDA libraries (gigabytes) come with torch."
	@echo "No GPU? PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make ... takes the CPU build alone."
	test -e $@ || $(PYTHON) -m venv --clear .venv
	@rm -f $@
	.venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt torch
	.venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt -qq -e '.[dev,images]'
	@touch $@
