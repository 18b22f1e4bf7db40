#!/usr/bin/env bash
# Lints everything, with warnings as errors: the workspace with all features at once, the fuzz targets beside it, and what only
# the model checkers build. And sees whether all planted bugs still build, which would show at night only.
source "$(dirname "$0")/../lib.sh"

component clippy clippy
# The features of keyqueue-kafka need libraries of the system.
kafka=(keyqueue-kafka ledger)
cargo clippy --workspace "${kafka[@]/#/--exclude=}" --all-features --all-targets -- -D warnings
cargo clippy "${kafka[@]/#/--package=}" --all-targets -- -D warnings
cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings
for checker in loom shuttle; do
    RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_$checker" CARGO_TARGET_DIR="$target/$checker" \
        cargo clippy -p "keyqueue-$checker-tests" --all-targets -- -D warnings
done
cargo run -p keyqueue-mutants -- --build
