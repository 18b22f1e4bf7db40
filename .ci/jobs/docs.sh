#!/usr/bin/env bash
# Builds the documentation, with warnings as errors: .ci/jobs/docs.sh [internals]. As users get it, where a public page must not link
# to a private one; or with what is private.
source "$(dirname "$0")/../lib.sh"

private=()
[[ ${1:-} != internals ]] || private=(--document-private-items)
export RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings"
# The features of keyqueue-kafka need libraries of the system.
kafka=(keyqueue-kafka ledger)
cargo doc --workspace "${kafka[@]/#/--exclude=}" --no-deps --all-features "${private[@]}"
cargo doc "${kafka[@]/#/--package=}" --no-deps "${private[@]}"
