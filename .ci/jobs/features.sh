#!/usr/bin/env bash
# Lints and tests what only optional features build, all of them together: futures-core, metrics, serde, tokio, tracing.
# (The tests of README.md's set-up run with `tokio` alone, which the examples use.)
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo clippy --version >/dev/null || rustup component add clippy

cargo clippy -p keyqueue -p keyqueue-examples --all-features --all-targets -- -D warnings
# This builds the programs, too, which `--test` does not.
cargo test -p keyqueue-examples --all-features --no-run
cargo test -p keyqueue-examples --all-features --test access_log --test help --test metrics --test top
cargo test -p keyqueue --all-features --lib --test metrics --test workers
cargo test -p keyqueue --all-features --doc
