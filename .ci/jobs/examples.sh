#!/usr/bin/env bash
# Runs the examples that README.md's set-up does not run. Each checks itself; of `pipeline` the
# results of one worker and of four must be the same.
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
for workers in 1 4; do
    # The last two lines tell how it went, not what came out.
    example pipeline -- "$work/log" --workers "$workers" --top 1000 >"$work/out"
    tail -n 2 "$work/out"
    head -n -2 "$work/out" >"$work/$workers"
done
cmp "$work/1" "$work/4"

example metrics -- --seconds 2 >"$work/series"
grep 'workqueue_adds_total{name="pods"}' "$work/series"
example top -- "$work/log" --frame 2
