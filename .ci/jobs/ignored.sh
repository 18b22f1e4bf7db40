#!/usr/bin/env bash
# Tests that `cargo test` leaves out, each for the reason beside it: they take long, or the whole machine. And the tests of memory
# with a million of everything.
source "$(dirname "$0")/../lib.sh"

cargo test --bins --test queue -- --ignored --nocapture --test-threads=1
KEYQUEUE_NIGHT=1 cargo test -p keyqueue --test memory
cargo test --release -p keyqueue-board --all-features --test million -- --ignored --nocapture
