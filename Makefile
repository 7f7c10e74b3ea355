# Names the field already types. The work is done by the programs themselves.

.PHONY: test ci engine-parity verify-rocm verify-rocm-overlay

test: ## all tests of both crates
	cargo test --workspace --locked

MODEL ?= synthetic:gemma3-270m
PARITY_ARGS ?= --expect-identical

engine-parity: ## every decode path against the synchronous one: MODEL=DIR PARITY_ARGS=…
	cargo run --release --locked -p mlxcel-engine --bin mlxcel-engine-parity -- -m $(MODEL) $(PARITY_ARGS)

# Both parts are wanted even if the first could not run everything.
ifneq ($(filter verify-rocm%,$(MAKECMDGOALS)),)
MAKEFLAGS += --keep-going
endif

verify-rocm: ## the ROCm routes as far as this machine can tell; ALLOW_NOT_RUN=1 accepts parts that did not run
	scripts/verify_rocm.sh engine

verify-rocm-overlay: ## the choice of routes and the device code behind it, likewise
	scripts/verify_rocm.sh overlay

ci: ## what the hosted CI runs
	bash .ci/run
