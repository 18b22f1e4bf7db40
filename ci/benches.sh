#!/usr/bin/env bash
# Builds every benchmark and runs all of its workloads once, far too short to measure anything:
# they check what was delivered, so this is a test that they work.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --bench '*'
