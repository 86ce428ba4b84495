# Needs Rust, a C compiler and linker, and Python 3 with venv; Node.js for the web console. Everything else is fetched.
# Only `make install` writes outside this directory.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run cluster build dist install package proto test check doctests style bench bench-heavy bench-replicas fuzz fuzz-commands fuzz-compiler fuzz-histories eviction-quality crash cluster-crash disk-space fuel-sweep simulation bench-nodes chart-apply fmt lint clean preflight parts crates zig console docs reference

TARGET := $(or $(CARGO_TARGET_DIR),target)
PYTHON ?= python3
# Given to the server by `make run`, such as ARGS="--resp 127.0.0.1:7000"
ARGS ?=
# What `make install` installs, and where: below $(DESTDIR)$(PREFIX).
BINARY ?= $(TARGET)/release/moonshard
PREFIX ?= /usr/local
# What is there when the web console is built, and when what that takes is fetched.
SITE := web-console/dist/built
MODULES := web-console/node_modules/.package-lock.json
# Exists when the documentation is built.
BOOK := docs/dist/built

# Where rustup cannot fetch the toolchain of rust-toolchain.toml, the installed one has to do.
ifneq ($(shell ! command -v cargo >/dev/null || cargo --version >/dev/null 2>&1 || echo missing),)
export RUSTUP_TOOLCHAIN := stable
$(info The pinned Rust toolchain is not there: trying "stable".)
endif

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

run: build ## Build and serve on 127.0.0.1:6379 (ARGS="--help" shows the options)
	@exec $(TARGET)/release/moonshard $(ARGS)

cluster: build ## Run 3 store nodes with 3 replicas and 2 gateways on this machine, data in ./data-cluster
	@exec deploy/cluster.sh $(abspath $(TARGET))/release/moonshard

build: parts ## Build target/release/moonshard in a few minutes
	cargo build --locked --release --package gateway
	@$(TARGET)/release/moonshard precompile >/dev/null

dist: parts ## Build target/dist/moonshard, the shipped binary: less CPU per script, longer to build
	cargo build --locked --profile dist --package gateway
	@$(TARGET)/dist/moonshard precompile >/dev/null

# It installs what is built, also with the rights of another user who has no cargo.
install: | $(BINARY) ## Install program, manual pages and completions (PREFIX=/usr/local BINARY=target/release/moonshard)
	deploy/packaging/install.sh $(BINARY) '$(DESTDIR)$(PREFIX)'

$(TARGET)/release/moonshard:
	$(MAKE) build

package: dist ## Package target/dist/moonshard as a tarball and a Python wheel in target/package
	$(PYTHON) deploy/packaging/package.py $(TARGET)/dist/moonshard $(TARGET)/package

proto: preflight ## Generate proto/src/generated from the .proto files
	cargo run --locked --quiet --package proto-codegen

# Properties are tried with the same cases each time, so that a change is judged by what it changes. `cargo test` draws anew.
test: export PROPTEST_RNG_SEED ?= 1
test: preflight ## Check format and lints, run all tests (FRESH=yes: also what has passed with the same files)
	@$(oracle)
	@$(browser)
	@tests/run.sh $(TARGET)
	@$(oracle)
	@$(browser)

# Of some crates only with CRATES="store resp".
check: style docs ## Check format and lints, run the unit tests (for the edit loop)
	cargo clippy --locked $(packages) --all-targets -- --deny warnings
	INSTA_UPDATE=no cargo test --locked --quiet $(packages) --lib --bins

CRATES ?=
packages = $(or $(addprefix --package ,$(CRATES)),--workspace)

# The only crate that has examples in its comments: the others say `doctest = false`.
doctests:
	cargo test --locked --quiet --package resp --doc

# Reports what is missing before anything is fetched or compiled.
preflight:
	@PYTHON=$(PYTHON) deploy/packaging/preflight.sh

# What the server contains, and the sources of the crates: fetched and built side by side, as most of it is waiting.
parts: preflight
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target zig console docs crates

crates:
	@cargo fetch --locked --quiet

# The web console is built before the server, which contains it.
console: preflight $(SITE)

$(SITE): $(wildcard web-console/src/* web-console/src/*/* web-console/public/*) web-console/index.html \
    web-console/vite.config.ts web-console/tsconfig.json $(MODULES) | preflight
	@$(node) cd web-console && npm run --silent build && touch dist/built

$(MODULES): web-console/package.json web-console/package-lock.json | preflight
	@$(node) cd web-console && npm ci --no-audit --no-fund && touch node_modules/.package-lock.json

# The book is built before the server, which contains it. It does not need what the server is compiled with.
docs: $(BOOK) ## Build the documentation, which the server serves at /docs/

$(BOOK): docs/build.sh docs/book.toml docs/requirements.txt $(shell find docs/src docs/recipes docs/examples docs/theme -type f)
	@PYTHON=$(PYTHON) docs/build.sh $(TARGET)

# What the tables in the code say about configuration, metrics, commands, error codes and the functions for scripts. Built
# with all of the workspace, as for tests, so that nothing is compiled again with other features.
reference: zig ## Rewrite docs/src/reference and the schema of the chart from the tables in the code
	cargo build --locked --workspace --bins
	for page in commands configuration errors metrics scripting-api; do \
	    $(TARGET)/debug/moonshard reference $$page >docs/src/reference/$$page.md; done
	$(TARGET)/debug/moonshard reference config-schema | $(PYTHON) deploy/helm/config_schema.py

# BENCH has options, such as "--only ZADD,PUBLISH --rounds 9".
bench: build ## Compare the cost of commands and keys with Redis
	@$(oracle)
	@if command -v redis-server >/dev/null; then \
	    $(PYTHON) tests/bench/families.py $(TARGET)/release/moonshard $(BENCH); fi

bench-heavy: build ## Compare how long others wait for heavy commands with Redis
	@$(oracle)
	@if command -v redis-server >/dev/null; then \
	    $(PYTHON) tests/bench/heavy.py $(TARGET)/release/moonshard $(BENCH); fi

bench-replicas: build ## Compare a cluster with and without replicas, and kill and stop its processes
	@if command -v redis-benchmark >/dev/null; then \
	    $(PYTHON) tests/bench/replicas.py $(TARGET)/release/moonshard $(BENCH); \
	else echo '***** redis-benchmark is not installed: nothing is measured *****'; fi

# What is found is kept below fuzz/artifacts of the crate; its seeds are tried by `make test`, too.
fuzz: zig ## Fuzz all parsers with random bytes, a minute each
	@if ! cargo +nightly fuzz --version >/dev/null 2>&1; then \
	    echo '***** cargo-fuzz or a nightly compiler is not installed: nothing is tried *****'; exit 1; fi
	for crate in gateway/resp gateway/script store/engine store; do \
	    pushd "$$crate" >/dev/null; \
	    for target in $$(cargo +nightly fuzz list); do \
	        seeds=fuzz/seeds/$$target; mkdir -p "fuzz/corpus/$$target"; \
	        if [[ "$$target" == source ]]; then seeds=../../tests/cases/bench; fi; \
	        if [[ ! -d "$$seeds" ]]; then seeds=; fi; \
	        cargo +nightly fuzz run "$$target" "fuzz/corpus/$$target" $$seeds -- -timeout=60 -rss_limit_mb=4096 \
	            -max_total_time=$${MOONSHARD_FUZZ_SECONDS:-60}; \
	    done; \
	    popd >/dev/null; \
	done

# Another seed each time: what was found tells it, for MOONSHARD_DIFF_SEED.
fuzz-commands: zig ## Compare the replies to two million random calls with Redis
	@$(oracle)
	cargo build --locked --package gateway
	MOONSHARD_DIFF_CALLS=$${MOONSHARD_DIFF_CALLS:-2000000} \
	    MOONSHARD_DIFF_SEED=$${MOONSHARD_DIFF_SEED:-$$(date +%s)} \
	    cargo test --locked --package tests --test long -- differential::local --nocapture

# Another seed each time: what was found tells it, for MOONSHARD_HISTORY_SEED.
fuzz-histories: zig ## Check for some minutes that histories are serializable
	cargo build --locked --package gateway
	MOONSHARD_HISTORY_SECONDS=$${MOONSHARD_HISTORY_SECONDS:-300} \
	    MOONSHARD_HISTORY_SEED=$${MOONSHARD_HISTORY_SEED:-$$(date +%s)} \
	    cargo test --locked --package tests --test long -- serializable::local --nocapture

eviction-quality: zig ## Compare the hit rates of eviction with Redis for some minutes
	@$(oracle)
	cargo build --locked --package gateway
	cargo test --locked --package tests --test long -- memory::hit_rates --ignored --nocapture

# Other seeds each time: what was found tells its own, for MOONSHARD_CRASH_SEED or MOONSHARD_DAMAGE_SEED.
crash: zig ## Kill the server and damage its files for some minutes, and check its data
	cargo build --locked --package gateway
	MOONSHARD_CRASH_SECONDS=$${MOONSHARD_CRASH_SECONDS:-600} \
	    MOONSHARD_CRASH_SEED=$${MOONSHARD_CRASH_SEED:-$$(date +%s)} \
	    MOONSHARD_DAMAGE_PLACES=$${MOONSHARD_DAMAGE_PLACES:-500} \
	    MOONSHARD_DAMAGE_SEED=$${MOONSHARD_DAMAGE_SEED:-$$(date +%s)} \
	    cargo test --locked --package tests --test long -- crash:: damage:: --skip cluster_crash:: --nocapture

# Another seed each time: what was found tells it, for MOONSHARD_CLUSTER_SEED.
cluster-crash: zig ## Kill, stop and disconnect store nodes and gateways for some minutes
	cargo build --locked --package gateway
	MOONSHARD_CLUSTER_SECONDS=$${MOONSHARD_CLUSTER_SECONDS:-600} \
	    MOONSHARD_CLUSTER_SEED=$${MOONSHARD_CLUSTER_SEED:-$$(date +%s)} \
	    cargo test --locked --package tests --test long -- cluster_crash:: --nocapture

# Another seed each time: what was found tells it, for MOONSHARD_TIER_SEED.
fuzz-compiler: zig ## Compare a million random scripts compiled and interpreted
	MOONSHARD_TIER_PROGRAMS=$${MOONSHARD_TIER_PROGRAMS:-1000000} \
	    MOONSHARD_TIER_SEED=$${MOONSHARD_TIER_SEED:-$$(date +%s)} \
	    cargo test --locked --release --package script --lib -- random_programs_do_the_same_in_both_tiers --nocapture

fuel-sweep: zig ## End a script with every value of fuel for some minutes
	MOONSHARD_FUEL_STEP=1 cargo test --locked --package tests --test long -- fuel_sweep:: --nocapture

# SEEDS is how many.
simulation: zig ## Try many seeds of the simulated replicas
	MOONSHARD_SIMULATION_SEEDS=$(or $(SEEDS),20000) cargo test --locked --package consensus -- simulation::no_seed

# Another seed each time: what was found tells it, for MOONSHARD_DISK_SEED.
disk-space: build ## Overwrite data for some minutes and check the disk usage
	MOONSHARD_BIN=$(abspath $(TARGET))/release/moonshard \
	    MOONSHARD_DISK_MEGABYTES=$${MOONSHARD_DISK_MEGABYTES:-50} \
	    MOONSHARD_DISK_TIMES=$${MOONSHARD_DISK_TIMES:-100} \
	    MOONSHARD_DISK_SEED=$${MOONSHARD_DISK_SEED:-$$(date +%s)} \
	    cargo test --locked --package tests --test long -- disk_space:: --nocapture

bench-nodes: build ## Compare the cost of calls over three store nodes and in one process
	MOONSHARD_BIN=$(abspath $(TARGET))/release/moonshard \
	    cargo run --locked --quiet --package tests --example nodes -- $(ARGS)

# KUBE_APISERVER and ETCD say where these are, if not on PATH. No server of ours takes part.
chart-apply: ## Install, upgrade and roll back the chart on a Kubernetes API server
	deploy/tests/run.sh /dev/null $(TARGET)/deploy applied

fmt: ## Format all sources
	cargo fmt --all
	@if [[ -e $(MODULES) ]]; then cd web-console && npm run --silent fmt; fi

# All of `lint` that needs no compiler.
style: zig console
	cargo fmt --all --check
	@$(lint_console)

lint: style docs ## Check format and lints
	cargo clippy --locked --workspace --all-targets -- --deny warnings

clean: ## Remove everything that was built or downloaded in this directory
	cargo clean
	rm -rf .venv web-console/node_modules web-console/dist/site $(SITE) docs/dist/book $(BOOK)

# The C compiler for WebAssembly that the Lua guest is built with, unless a fitting zig is there already.
zig: preflight
	@if [[ -n "$${MOONSHARD_ZIG:-}" || "$$(zig version 2>/dev/null)" == 0.17.* ]]; then exit 0; fi; \
	if [[ .venv/ready -nt guest-lua/requirements.txt ]]; then exit 0; fi; \
	echo "Fetching the C compiler for WebAssembly into .venv"; \
	$(PYTHON) -m venv --clear .venv; \
	.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
	    --requirement guest-lua/requirements.txt; \
	.venv/bin/python -m ziglang version; \
	touch .venv/ready

define lint_console
if [[ -e $(MODULES) ]]; then cd web-console && npm run --silent lint; fi
endef

# Tests that compare with Redis need one on PATH.
define oracle
if ! command -v redis-server >/dev/null; then \
    echo '***** redis-server is not installed: the tests that compare with Redis are SKIPPED *****'; \
fi
endef

# Those of the web console want a browser.
define browser
if ! command -v chromium >/dev/null; then \
    echo '***** chromium is not installed: the tests of the web console in a browser are SKIPPED *****'; \
fi
endef

# The server can do without its web console; preflight.sh reports that.
define node
if ! deploy/packaging/preflight.sh node; then exit 0; fi;
endef
