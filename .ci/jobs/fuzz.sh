#!/usr/bin/env bash
# Runs every fuzz target for a bounded time: .ci/jobs/fuzz.sh [SECONDS], FUZZ_SECONDS or 20 by default. Uses a nightly toolchain if one is installed, and
# otherwise stable with its gates open. Begins with the seeds in fuzz/seeds; what it finds beyond is kept in fuzz/corpus,
# outside of git. Needs a C++ compiler.
source "$(dirname "$0")/../lib.sh"

tool cargo-fuzz 0.13.2 612108f626b6ee0e5d63b1a0e257c89c13abffbd8fff539ccbffb7205b33093f
if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    fuzz() { cargo +nightly fuzz "$@"; }
else
    export RUSTC_BOOTSTRAP=1
    fuzz() { cargo fuzz "$@"; }
fi
seconds=${1:-${FUZZ_SECONDS:-20}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fuzz build
running=() names=$(fuzz list)
[[ -n $names ]]
for name in $names; do
    mkdir -p "fuzz/corpus/$name"
    fuzz run "$name" "fuzz/corpus/$name" "fuzz/seeds/$name" -- -max_total_time="$seconds" -print_final_stats=1 \
        >"$work/$name" 2>&1 &
    running+=("$!:$name")
done
failed=0
for one in "${running[@]}"; do
    ended=passed
    wait "${one%%:*}" || { ended=failed && failed=1; }
    echo "== ${one#*:}, $seconds s: $ended"
    # Where it failed, all of it: there is the input.
    if [[ $ended == passed ]]; then tail -n 12 "$work/${one#*:}"; else cat "$work/${one#*:}"; fi
done
exit "$failed"
