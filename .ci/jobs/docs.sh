#!/usr/bin/env bash
# Builds the documentation, with warnings as errors: .ci/jobs/docs.sh [internals]. As users get it, where a public page must not link
# to a private one; or with what is private.
source "$(dirname "$0")/../lib.sh"

private=()
[[ ${1:-} != internals ]] || private=(--document-private-items)
export RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings"
cargo doc --workspace --exclude keyqueue-kafka --exclude ledger --no-deps --all-features "${private[@]}"
# Its features need libraries of the system.
cargo doc -p keyqueue-kafka --no-deps "${private[@]}"
