#!/usr/bin/env bash
# Runs the tests that `cargo test` leaves out, each for the reason that stands beside it: they take
# long, or the whole machine. One at a time, and they print their figures.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --test delays_threads --test stress --test waiting -- --ignored --nocapture --test-threads=1
