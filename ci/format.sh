#!/usr/bin/env bash
# Checks that everything is formatted: the workspace, and the fuzz targets beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh rustfmt fmt

cargo fmt --all -- --check
cargo fmt --manifest-path fuzz/Cargo.toml -- --check
