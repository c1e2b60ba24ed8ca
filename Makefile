# `make demo` and `make test` are the README's two commands. They install what is missing, from Debian packages, crates.io
# and PyPI only.

SHELL := /bin/bash
# Links with mold if it is installed. `mold -run` changes no compiler flag, so what cargo built without it stays valid.
MOLD := $(if $(shell command -v mold),mold -run)
CARGO ?= $(MOLD) cargo
# release, or demo: see Cargo.toml.
PROFILE ?= release
# The tests need two cores and use more where the machine has them.
JOBS ?= $(shell nproc)
# How long `make test` runs each fuzz target.
FUZZ_SECONDS ?= 30

.PHONY: demo test check fmt clippy edges deny deploy unit fuzz bench build tools redis clean help

help:
	@echo "make demo    build into .venv, start the built-in shop, run the tour for 20 s, leave squall-report.html"
	@echo "make test    install what the tests need and run them all"
	@echo "make check   format, lints, edges between crates, licences, deployment files"
	@echo "make bench   side by side with wrk, oha, k6, locust (those that are installed)"
	@echo "make build   target/release/squall"

demo:
	@VENV=$(VENV) scripts/demo

build:
	$(CARGO) build --profile $(PROFILE) --locked -j $(JOBS) -p squall-cli

test: tools check unit fuzz
	@scripts/test-lines target/test.log

check: fmt clippy edges deny deploy

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -j $(JOBS) -- -D warnings

edges:
	python3 scripts/check-edges

deny:
	scripts/deny

deploy:
	scripts/check-deploy

unit: redis
	@mkdir -p target
	set -o pipefail; $(CARGO) test --workspace --no-fail-fast --locked -j $(JOBS) 2>&1 | tee target/test.log

fuzz:
	scripts/fuzz $(FUZZ_SECONDS)

bench: build
	bench/run

tools:
	scripts/install-tools

redis:
	scripts/install-redis

clean:
	$(CARGO) clean

-include python.mk
