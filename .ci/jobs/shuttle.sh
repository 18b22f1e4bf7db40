#!/usr/bin/env bash
# The scenarios of checks/shuttle. The cfg changes every crate, so a target directory of its own saves building all twice.
source "$(dirname "$0")/../lib.sh"

# (RUSTDOCFLAGS is for the program of the page on model checking.)
RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_shuttle" RUSTDOCFLAGS="--cfg keyqueue_shuttle" CARGO_TARGET_DIR="$target/shuttle" \
    cargo test -p keyqueue-shuttle-tests --release
