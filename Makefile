# Names the field already types. The work is done by the programs themselves.

.PHONY: test ci engine-parity

test: ## all tests of both crates
	cargo test --workspace --locked

MODEL ?= synthetic:gemma3-270m
PARITY_ARGS ?= --expect-identical

engine-parity: ## every decode path against the synchronous one: MODEL=DIR PARITY_ARGS=…
	cargo run --release --locked -p mlxcel-engine --bin mlxcel-engine-parity -- -m $(MODEL) $(PARITY_ARGS)

ci: ## what the hosted CI runs
	bash .ci/run
