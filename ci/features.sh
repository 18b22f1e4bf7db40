#!/usr/bin/env bash
# Lints and tests what only optional features build.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh clippy clippy

cargo clippy --all-features --lib -- -D warnings
cargo test --all-features --doc backoff::tokio
