#!/usr/bin/env bash
# Runs the model checks: ci/loom.sh [further arguments to cargo test].
set -euo pipefail
cd "$(dirname "$0")/.."

# The flags change every crate, so a target directory of their own saves building all twice.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_loom"
cargo test -p keyqueue-loom-tests --release "$@"
