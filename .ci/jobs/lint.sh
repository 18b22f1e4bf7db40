#!/usr/bin/env bash
# Lints everything, with warnings as errors: the workspace, the fuzz targets beside it, and what only the
# model checkers build.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo clippy --version >/dev/null || rustup component add clippy

cargo clippy --workspace --all-targets -- -D warnings
cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings
for checker in loom shuttle; do
    RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_$checker" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/$checker" \
        cargo clippy -p "keyqueue-$checker-tests" --all-targets -- -D warnings
done
