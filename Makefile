# Names the field already types. The work is done by the programs themselves.

.PHONY: test ci

test: ## all tests of both crates
	cargo test --workspace --locked

ci: ## what the hosted CI runs
	bash .ci/run
