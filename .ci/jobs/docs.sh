#!/usr/bin/env bash
# Builds the documentation, with warnings as errors: once as users get it, once with what is private.
source "$(dirname "$0")/../lib.sh"

export RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings"
cargo doc --workspace --no-deps --document-private-items --all-features
# Last, so that this is what stays in target/doc; and a public page must not link to a private one.
cargo doc --workspace --all-features --no-deps
