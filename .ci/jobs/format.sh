#!/usr/bin/env bash
# Checks the format, as rustfmt and gofmt have it.
source "$(dirname "$0")/../lib.sh"

component fmt rustfmt
cargo fmt --all -- --check
cargo fmt --manifest-path fuzz/Cargo.toml -- --check
if command -v gofmt >/dev/null; then
    unformatted=$(gofmt -l benches/compare/go kube/apiserver)
    [[ -z $unformatted ]] || { echo "not formatted by gofmt: $unformatted" && exit 1; }
else
    skip "format of Go" "there is no gofmt"
fi
