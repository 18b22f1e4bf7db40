#!/usr/bin/env bash
# Runs every workload of the comparison once, with every contender that can be had, far too short to
# measure anything: they check what was delivered, so this is a test that they work. Where there is a
# `go` that can get its modules, the contenders in Go have to be among them.
set -euo pipefail
cd "$(dirname "$0")/../.."

everybody=()
if ! command -v go >/dev/null; then
    echo "ci: there is no go; the contenders in Go are not run"
elif ! (cd benches/compare/go && go list -deps . >/dev/null); then
    echo "ci: go cannot get its modules; the contenders in Go are not run"
else
    everybody=(--everybody)
    unformatted=$(gofmt -l benches/compare/go)
    if [[ -n $unformatted ]]; then
        echo "ci: not formatted by gofmt: $unformatted" >&2
        exit 1
    fi
    (cd benches/compare/go && go vet .)
fi

cargo test -p compare
# With overflow checks and debug assertions, as the tests have them.
cargo run --profile test -p compare -- --smoke "${everybody[@]}"

# What being watched costs: that it runs, not what it prints.
cargo test -p keyqueue --all-features --bench watched
