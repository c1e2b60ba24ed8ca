# The Python package: `make python` leaves it in .venv, `make python-test` tests it there. Included by the Makefile.

VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python

.PHONY: python python-tools python-check python-test python-bench

$(VENV)/.tools: scripts/python-requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r scripts/python-requirements.txt
	touch $@

python-tools: $(VENV)/.tools

# The package and the command `squall`, optimised, from this folder.
python: python-tools
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps .

python-check: python-tools
	$(VENV)/bin/ruff check python scenarios bench/python
	$(VENV)/bin/mypy

# Quicker to build than the optimised package; the tests are the same.
python-test: python-tools python-check
	$(VENV)/bin/maturin develop --quiet
	$(PY) -m pytest -q

python-bench: python
	$(PY) bench/python/run $(BENCH_URL)

# `make demo` leaves the command in the venv too, where Python can have one.
demo: demo-python
.PHONY: demo-python
demo-python: build
	@echo "building the Python package (minutes the first time) ..."
	@$(MAKE) --no-print-directory python && echo "Python scenarios: $(VENV)/bin/squall run scenarios/shop.py" \
	  || echo "The Python package was not built; everything but Python scenarios works without it."

test: python-test
check: python-check
