#!/usr/bin/env bash
# Lints everything, with warnings as errors: the workspace, and the fuzz targets beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh clippy clippy

cargo clippy --workspace --all-targets -- -D warnings
cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings
