# The Python package: `make python` leaves it in .venv, `make python-test` tests it there. Included by the Makefile.

VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python

.PHONY: python python-demo python-dev python-free python-tools python-check python-test python-bench

$(VENV)/.tools: scripts/python-requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r scripts/python-requirements.txt
	touch $@

python-tools: $(VENV)/.tools

$(VENV)/bin/maturin:
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check maturin greenlet

# The package and the command `squall`. Built by maturin itself and not through pip, which would hide cargo's progress.
python: ui $(VENV)/bin/maturin
	rm -rf target/wheel
	$(MOLD) $(VENV)/bin/maturin build --profile $(PROFILE) $(FEATURES) --locked --jobs $(JOBS) --interpreter $(PY) --out target/wheel
	$(PY) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheel/*.whl

# The same for an interpreter without the global lock, which has no stable ABI: a wheel of its own, tried in an environment of its own.
PYTHON_FREE ?= python3.14t
python-free: ui $(VENV)/bin/maturin
	@command -v $(PYTHON_FREE) >/dev/null || { echo "no $(PYTHON_FREE) here: Debian's source package of python3.14 builds it with \
	  ./configure --disable-gil; name it with PYTHON_FREE="; exit 2; }
	rm -rf target/wheel-free
	$(MOLD) $(VENV)/bin/maturin build --release --locked --jobs $(JOBS) --interpreter $(PYTHON_FREE) --out target/wheel-free
	$(PYTHON_FREE) -m venv $(VENV)-free
	$(VENV)-free/bin/python -m pip install --quiet --disable-pip-version-check target/wheel-free/*.whl
	$(VENV)-free/bin/python scripts/smoke-wheel

python-check: python-tools
	$(VENV)/bin/ruff check python scenarios bench/python
	$(VENV)/bin/mypy

# Makes this checkout the package of $(VENV), as `maturin develop` would, with the module that cargo left in target/$(1).
define install-checkout
	cp target/$(1)/lib_squall.so python/squall/_squall.abi3.so
	if ls $(VENV)/lib/python*/site-packages/squall-*.dist-info >/dev/null 2>&1; then \
	  $(PY) -m pip uninstall --quiet --disable-pip-version-check --yes squall; fi
	echo $(CURDIR)/python >"$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/squall.pth"
	sed '1s|.*|#!$(abspath $(PY))|' python/squall.data/scripts/squall >$(VENV)/bin/squall
	chmod +x $(VENV)/bin/squall
endef

# One call of cargo builds the module together with the tests of the workspace, so that both have the same features and
# no crate is compiled twice.
python-dev: python-tools
	$(CARGO) build --workspace --lib --bins --tests --locked -j $(JOBS)
	$(call install-checkout,debug)

$(VENV)/.greenlet:
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check greenlet
	touch $@

# What `make demo` runs. Without maturin, which takes as long to install as a large crate to compile, and which downloads
# the crates of all platforms.
python-demo: PROFILE := demo
python-demo: ui $(VENV)/.greenlet
	PYO3_PYTHON=$(abspath $(PY)) $(CARGO) build --profile $(PROFILE) $(FEATURES) --locked -j $(JOBS) -p squall-python
	$(call install-checkout,$(PROFILE))

# PYTEST_JOBS=2 divides the files between two processes, which is quicker; tests that measure a rate may then find the
# machine too busy. Not single tests, because fixtures of a file start a database or a browser.
PYTEST_JOBS ?= 0
python-test: python-check python-dev
	$(PY) -m pytest -q -n $(PYTEST_JOBS) --dist loadfile

python-bench: python
	$(PY) bench/python/run $(BENCH_URL)

test: python-test
check: python-check
