#!/usr/bin/env bash
# Runs the examples that README.md's set-up does not run. Each checks itself.
set -euo pipefail
cd "$(dirname "$0")/../.."

example() {
    cargo run --release --quiet -p keyqueue-examples --all-features --example "$@"
}

cargo build --release -p keyqueue-examples --all-features --examples
example quickstart
example async_tokio

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk 'BEGIN { for (n = 0; n < 100000; n++) printf "client-%d line %d\n", n * n % 997, n }' >"$work/log"
example pipeline -- "$work/log" --top 1
awk 'BEGIN { for (n = 0; n < 100000; n++)
    printf "client-%d - - [09/Feb/2026:10:%02d:00 +0000] \"GET /\" 200 1\n", n * n % 997, n % 60 }' >"$work/access"
example access_log -- --database "$work/counts" --once "$work/access"

example metrics -- --seconds 2 >"$work/series"
grep 'workqueue_adds_total{name="pods"}' "$work/series"
example top -- --frame 2
example top -- "$work/log" --frame 2 | head -n 0
