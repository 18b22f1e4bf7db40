#!/bin/sh
# Runs every fuzz target for a bounded time: .ci/jobs/fuzz.sh [seconds for each target, default 20].
# Uses a nightly toolchain if one is installed, and otherwise stable with its gates open.
# Begins with the seeds in fuzz/seeds; what it finds beyond is kept in fuzz/corpus, outside of git.
set -eu

seconds=${1:-20}
cd "$(dirname "$0")/../.."

command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    fuzz() { cargo +nightly fuzz "$@"; }
else
    export RUSTC_BOOTSTRAP=1
    fuzz() { cargo fuzz "$@"; }
fi

targets=$(fuzz list)
fuzz build
for target in $targets; do
    echo "== $target, $seconds s"
    mkdir -p "fuzz/corpus/$target"
    fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -print_final_stats=1
done
