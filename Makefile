# `make demo` and `make test` are the README's two commands. They install what is missing, from Debian packages, crates.io,
# PyPI and npm only.

SHELL := /bin/bash
# Links with mold if it is installed. `mold -run` changes no compiler flag, so what cargo built without it stays valid.
MOLD := $(if $(shell command -v mold),mold -run)
CARGO ?= $(MOLD) cargo
# release, or demo: see Cargo.toml.
PROFILE ?= release
# The demo leaves out the commands whose libraries take long to compile.
FEATURES = $(if $(filter demo,$(PROFILE)),--no-default-features --features browser)
# The tests need two cores and use more where the machine has them.
JOBS ?= $(shell nproc)
# Most tests wait for processes and timers, not for a core.
TEST_THREADS ?= $(shell expr 2 '*' $(JOBS))
# How long `make test` runs each fuzz target.
FUZZ_SECONDS ?= 10

.PHONY: demo test check fmt clippy edges deny deploy ui ui-check ui-test unit fuzz bench build tools redis cassandra playwright clean help

help:
	@echo "make demo    build into .venv, start the built-in shop, run the tour for 20 s, leave squall-report.html"
	@echo "make test    install what the tests need and run them all"
	@echo "make check   format, lints, edges between crates, licences, deployment files"
	@echo "make bench   side by side with wrk, oha, k6, locust (those that are installed)"
	@echo "make build   target/release/squall, with the web UI"
	@echo "make python  the Python package with the command, into .venv; \`make python-test\` tests it"
	@echo "make ui      the files of the web UI, which the next build embeds; needs no node"

demo:
	@VENV=$(VENV) scripts/demo

build: ui
	$(CARGO) build --profile $(PROFILE) $(FEATURES) --locked -j $(JOBS) -p squall-cli

test: tools check unit ui-test fuzz
	@scripts/test-lines target/test.log

check: fmt clippy edges deny deploy ui-check

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

# esbuild, TypeScript and Biome are native programs, so that neither target needs node.
ui:
	scripts/ui-tools build
	scripts/ui-build

ui-check:
	scripts/ui-tools build check
	cd ui && node_modules/@typescript/typescript-*/lib/tsc -p .
	cd ui && node_modules/@biomejs/cli-*/biome ci --colors=off --error-on-warnings
	scripts/ui-lint
	scripts/ui-types --check

# The page in Chromium against a fleet; needs node and Debian's chromium-headless-shell. `make test` has built the program
# together with its tests; a build of its own would have other features and compile most crates again.
ui-test: ui redis
	scripts/ui-tools test
	$(if $(filter test,$(MAKECMDGOALS)),SQUALL=$(CURDIR)/target/debug/squall) scripts/ui-test

unit: ui redis cassandra playwright
	@mkdir -p target
	set -o pipefail; RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --workspace --no-fail-fast --locked -j $(JOBS) 2>&1 | tee target/test.log

fuzz:
	scripts/fuzz $(FUZZ_SECONDS)

bench: build
	bench/run

tools:
	scripts/install-tools

redis:
	scripts/install-redis

cassandra:
	scripts/cassandra/fetch

playwright:
	scripts/install-playwright

clean:
	$(CARGO) clean

-include python.mk
