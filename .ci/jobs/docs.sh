#!/usr/bin/env bash
# Builds the documentation, with warnings as errors: .ci/jobs/docs.sh [all]. Of the crate as users get it, where a public page must not
# link to a private one; or of all packages, and also with what is private.
source "$(dirname "$0")/../lib.sh"

export RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings"
if [[ ${1:-} != all ]]; then
    cargo doc -p keyqueue --no-deps --all-features
    exit
fi
# The features of keyqueue-kafka need libraries of the system.
kafka=(keyqueue-kafka ledger)
for private in "" --document-private-items; do
    cargo doc --workspace "${kafka[@]/#/--exclude=}" --no-deps --all-features $private
    cargo doc "${kafka[@]/#/--package=}" --no-deps $private
done
