#!/usr/bin/env bash
# Runs the large scenarios under random schedules: ci/shuttle.sh [further arguments to cargo test].
set -euo pipefail
cd "$(dirname "$0")/.."

# The flags change every crate, so a target directory of their own saves building all twice.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle"
export RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_shuttle"
cargo test -p keyqueue-shuttle-tests --release "$@"
