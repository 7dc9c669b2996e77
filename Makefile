# The two commands of the README are `make up` and `make test`. Both install what is missing.
.PHONY: up down test build install lint clean bench

up: build
	./target/release/braid up ./var --mount ./mnt

down:
	./target/release/braid down ./var

test: install
	scripts/test

build: install
	cargo build --release --locked -p braid

install:
	scripts/install

lint:
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

clean: 
	-./target/release/braid down ./var
	cargo clean

bench: build
	./target/release/braid bench metadata
	./target/release/braid bench data
