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

$(VENV)/bin/maturin:
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check maturin greenlet

# The package and the command `squall`, optimised. Built by maturin itself and not through pip, which would hide cargo's progress.
python: $(VENV)/bin/maturin
	rm -rf target/wheel
	$(VENV)/bin/maturin build --release --locked --jobs $(JOBS) --interpreter $(PY) --out target/wheel
	$(PY) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheel/*.whl

python-check: python-tools
	$(VENV)/bin/ruff check python scenarios bench/python
	$(VENV)/bin/mypy

# Quicker to build than the optimised package; the tests are the same.
python-test: python-tools python-check
	$(VENV)/bin/maturin develop --quiet
	$(PY) -m pytest -q

python-bench: python
	$(PY) bench/python/run $(BENCH_URL)

test: python-test
check: python-check
