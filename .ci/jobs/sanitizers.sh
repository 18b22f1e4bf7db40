#!/usr/bin/env bash
# Runs the concurrent tests under sanitizers: .ci/jobs/sanitizers.sh [thread] [address], default both.
#
# thread: data races. ThreadSanitizer knows no fences, and takes what only a fence orders for
#         unordered. In the crate fences order atomic accesses alone, so nothing in it is excepted; the
#         tests keep in relaxed atomics what a caller writes before an add that is merged. That the
#         fences are right is checked by loom and Miri.
# address: use after free, out of bounds; and leaks, at the end of each test binary.
#
#     SANITIZER_TESTS      only these: "stress queue". By default the crate's tests but memory and
#                          visibility, those in src/ (`unit`), the linearizability of checks/model/,
#                          and the `stress` of checks/soak/.
#     SANITIZER_SECONDS    how long the stress tests last, 10 by default.
#     SANITIZER_HISTORIES  how many histories the linearizability takes, 3000 by default.
#
# Takes a nightly toolchain if one is installed, and otherwise stable with its gates open. With the
# source of the standard library (`rustup component add rust-src`, which this tries) ThreadSanitizer
# sees into that, too; without it .ci/jobs/tsan-std.txt has what is suppressed.
source "$(dirname "$0")/../lib.sh"

read -ra tests <<<"${SANITIZER_TESTS:-unit queue stress limits workers order values metrics linearizability}"
host=$(rustc -vV | sed -n 's/^host: //p')
builds=${CARGO_TARGET_DIR:-target}

if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    toolchain=(+nightly)
    rustup component add --toolchain nightly rust-src 2>/dev/null || true
else
    toolchain=()
    export RUSTC_BOOTSTRAP=1
fi
sysroot=$(rustc "${toolchain[@]}" --print sysroot)
has_source=false
[[ ! -f $sysroot/lib/rustlib/src/rust/library/Cargo.lock ]] || has_source=true

export KEYQUEUE_STRESS_SECONDS=${SANITIZER_SECONDS:-10}
export KEYQUEUE_HISTORIES=${SANITIZER_HISTORIES:-3000}
# Panics are part of some tests; telling where each came from takes longer than the rest.
export RUST_BACKTRACE=0
# Many times slower than usual. And the races of `waiting` hand the processor to and fro: beside eight busy
# programs on two cores it took 74 s instead of 4 with the same 4 s of processor time, no hang.
export KEYQUEUE_TEST_PATIENCE=${KEYQUEUE_TEST_PATIENCE:-10}
# The first limits the address space, of which sanitizers need terabytes. The second leaks on purpose.
skip=(--skip more_threads_than_can_be_started_are_refused_and_none_is_left)
skip+=(--skip a_leaked_job_keeps_its_value_in_threads_and_loses_it_in_futures)
packages=() targets=()
for test in "${tests[@]}"; do
    package=keyqueue target=--test=$test
    [[ " limits metrics values workers " != *" $test "* ]] || package=keyqueue-tests
    [[ $test != unit ]] || target=--lib
    [[ $test != linearizability ]] || package=keyqueue-model
    [[ $test != stress ]] || package=keyqueue-soak target=--bins
    [[ " ${packages[*]} " == *" --package=$package "* ]] || packages+=("--package=$package")
    targets+=("$target")
done
# The counters of the metrics are in the crate's tests.
[[ " ${packages[*]} " != *"=keyqueue "* ]] || packages+=(--features=keyqueue/metrics)

sanitizers=("$@")
[[ $# -gt 0 ]] || sanitizers=(thread address)
# One failure hides no other: a run takes long.
failed=0
for sanitizer in "${sanitizers[@]}"; do
    flags="-Zsanitizer=$sanitizer"
    build_std=()
    suppressions=
    if [[ $sanitizer == thread ]]; then
        if $has_source; then
            build_std=(-Zbuild-std)
        else
            suppressions=$PWD/.ci/jobs/tsan-std.txt
            # Else the compiler refuses a standard library that was built without.
            flags+=" -Cunsafe-allow-abi-mismatch=sanitizer"
        fi
    fi
    echo "== $sanitizer${build_std:+, with the standard library}: ${tests[*]}"
    TSAN_OPTIONS="suppressions=$suppressions ${TSAN_OPTIONS:-}" \
    ASAN_OPTIONS="detect_leaks=1 detect_stack_use_after_return=1 ${ASAN_OPTIONS:-}" \
    RUSTFLAGS="${RUSTFLAGS:-} $flags" \
    CARGO_TARGET_DIR="$builds/$sanitizer-sanitizer" \
        cargo "${toolchain[@]}" test "${build_std[@]}" --target "$host" \
        --no-fail-fast "${packages[@]}" "${targets[@]}" -- "${skip[@]}" || failed=1
done
[[ $failed -eq 0 ]]
