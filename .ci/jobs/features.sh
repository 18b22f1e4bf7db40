#!/usr/bin/env bash
# What `cargo test` leaves out: .ci/jobs/features.sh [sqlite]. Tests and runs the examples, tests the suites of other queues and what
# being watched costs, and checks each feature alone, and none. `sqlite`, for the night: the examples
# that compile SQLite, one of them with five million lines.
source "$(dirname "$0")/../lib.sh"

example() {
    local name=$1
    shift
    echo "+ $name $*"
    "$target/debug/examples/$name" "$@"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ ${1:-} == sqlite ]]; then
    cargo test -p keyqueue-examples --features sqlite
    cargo build --release -p keyqueue-examples --features sqlite --example import
    cargo test --release -p keyqueue-examples --features sqlite --test import -- --ignored --nocapture
    awk 'BEGIN { for (n = 0; n < 100000; n++)
        printf "client-%d - - [09/Feb/2026:10:%02d:00 +0000] \"GET /\" 200 1\n", n * n % 997, n % 60 }' >"$work/access"
    example access_log --database "$work/counts" --once "$work/access"
    exit
fi

# What the metrics look like to a real Prometheus. Debian's package has promtool, too, and starts a server where there is a
# system to start it.
if ! command -v prometheus >/dev/null; then
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus) >/dev/null 2>&1 ||
        echo "prometheus cannot be installed"
    systemctl disable --now prometheus >/dev/null 2>&1 || true
fi
cargo test -p keyqueue-tests -p keyqueue-benches --features keyqueue-benches/metrics --test peers --bench watched
cargo test -p keyqueue-examples --features metrics

example quickstart
example service --clicks 10000 --fail 20
awk 'BEGIN { for (n = 0; n < 100000; n++) printf "client-%d line %d\n", n * n % 997, n }' >"$work/log"
example pipeline "$work/log" --busiest 1
# Nobody reads what it prints. Not by `example`, whose first line could find the pipe closed.
"$target/debug/examples/pipeline" "$work/log" | head -n 0
example pipeline --seconds 2 >"$work/series"
grep 'workqueue_adds_total{name="pipeline"}' "$work/series"

tool cargo-hack 0.6.45 f48ca4698cef7c02a6f845253c4236b9974336e37c9e69ec9135d795696444d3
cargo hack check -p keyqueue --each-feature --exclude-features loom,shuttle
