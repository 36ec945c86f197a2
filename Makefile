# The verbs of this repository. Each line is what a person would type; CI calls `make test`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The test runner and other tools that tests/servers/setup installs, ahead of any others.
export PATH := $(shell tests/servers/setup path):$(PATH)

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The commands below have an order.
.NOTPARALLEL:

# xtask as the whole workspace builds it. `cargo xtask` would compile most dependencies a second time, with other features.
TARGET := $(or $(CARGO_TARGET_DIR),target)
XTASK := $(TARGET)/debug/xtask

# What container tests need of the machine; see tests/servers/prerequisites.
.PHONY: test-prerequisites
test-prerequisites:
	@tests/servers/prerequisites rust lints go debian root

.PHONY: static-checks
static-checks:
	cargo fetch --locked --quiet
	cargo fmt --all --check
	cargo build --workspace --bin xtask --test crds --locked
	$(XTASK) layers
	$(XTASK) codegen --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: check-prerequisites
check-prerequisites:
	@tests/servers/prerequisites rust lints compiler

.PHONY: check
check: check-prerequisites static-checks ## Check formatting, lints, layers, generated files; run unit and property tests; no server, some minutes
	LARDER_CACHE=/nonexistent cargo test --workspace --lib --bins --test crds --test setup --locked --quiet -- --skip real_servers::

.PHONY: test
test: test-prerequisites setup lint ## Run every check and every test, against real servers; installs what it needs
	cargo build --workspace --bins --tests --locked
	$(XTASK) image --profile dev --output target/images/dev
	rm -rf $(TARGET)/tmp/runtimes
	cargo nextest run --workspace --locked --no-fail-fast
	$(XTASK) runtimes --check
	$(call test-kubernetes,$(OLDEST_KUBERNETES))
	cargo test --workspace --locked --doc --quiet

# The oldest that is supported; `make test` runs the newest and this one.
OLDEST_KUBERNETES := 1.27.4

# Tests that depend on the version of the API server, on this one. Below 1.30 the policy on agents cannot be enforced.
test-kubernetes = LARDER_TEST_KUBERNETES=$(1) cargo nextest run --workspace --locked --no-fail-fast \
	--profile kubernetes$(if $(filter 1.27.% 1.28.% 1.29.%,$(1)),-without-node-policy)

.PHONY: test-kubernetes
test-kubernetes: test-prerequisites setup ## Run the tests that depend on the version of Kubernetes, on VERSION: 1.27.4, 1.30.14, 1.33.4 or 1.36.3
	$(if $(VERSION),,$(error give the version, for example: make test-kubernetes VERSION=1.30.14))
	tests/servers/setup only kubernetes-$(VERSION)
	cargo build --workspace --bins --tests --locked
	$(call test-kubernetes,$(VERSION))

.PHONY: test-cluster
test-cluster: test-prerequisites setup ## Of these, only the tests that install the chart into clusters with real kubelets
	cargo nextest run --package larder-cluster --locked --no-fail-fast

.PHONY: setup
setup: ## Install the servers and tools that the tests need (make test does it too)
	@tests/servers/prerequisites rust go debian
	tests/servers/setup

.PHONY: lint
lint: check-prerequisites static-checks ## Check formatting, lints, links in the documentation, dependencies and their licences
	tests/servers/setup only cargo-deny
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
	cargo deny --log-level error check bans licenses sources

.PHONY: fuzz
fuzz: check-prerequisites ## Feed parsers of registries' answers and of configuration files with changed examples, FUZZ_SECONDS (default: 60) each
	LARDER_FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) cargo test --package larder-registry --lib --locked fuzz:: -- --nocapture

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: build
build: ## Build the release binaries into target/release
	@tests/servers/prerequisites rust compiler
	cargo build --release --locked --package larder --package larder-agent-bin --package larder-controller-bin

.PHONY: images
images: ## Build the container images, without a daemon, into target/images (ARCH=amd64,arm64 for both)
	cargo xtask image --arch $(or $(ARCH),amd64)

.PHONY: demo
demo: ## Run everything on this machine: API server, controller, three nodes, a registry, the example jobs
	@tests/servers/prerequisites rust compiler
	cargo run --locked --package larder -- up --demo

.PHONY: bench-agent
bench-agent: test-prerequisites setup ## Measure the agent: memory, latencies, overhead over a bare CRI call
	cargo build --release --locked --package larder-agent-bin
	cargo run --release --quiet --locked --package larder-agent-bin --example bench-agent

.PHONY: bench-controller
bench-controller: test-prerequisites setup ## Measure the controller on up to 10,000 nodes, and write docs/benchmarks.md (ten minutes)
	cargo build --release --locked --package larder-controller-bin
	cargo run --release --quiet --locked --package larder-scale --example bench-controller

.PHONY: bench-pull
bench-pull: test-prerequisites setup ## Measure fetching beside CRI, on real containerds over lines with limits (long; PERCENT=10 only tries each line)
	cargo run --profile simulate --quiet --locked --package larder-runtime --example bench-pull -- $(PERCENT)

.PHONY: simulate
simulate: ## Run the engine in virtual time against a world of faults (SEEDS=10000, or SEED=n to repeat one run)
	cargo run --profile simulate --quiet --locked --package larder-simulate -- $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000)) $(if $(FLEET),--largest-fleet $(FLEET))

.PHONY: soak
soak: test-prerequisites setup ## Kill every part, and restore etcd from older copies, at random moments of running jobs, 20 times each (seed printed; SEED=N repeats)
	cargo build --workspace --bins --locked
	cargo run --locked --package larder-e2e --example soak -- kills 20 $(SEED)
	cargo run --locked --package larder-e2e --example soak -- restores 20 $(SEED)

.PHONY: clean-servers
clean-servers: ## Remove the servers and tools that setup put into the cache folder
	tests/servers/setup clean
