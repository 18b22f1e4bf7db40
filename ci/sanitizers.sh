#!/usr/bin/env bash
# Runs the concurrent tests under sanitizers: ci/sanitizers.sh [thread] [address], default both.
#
# thread: data races. ThreadSanitizer knows no fences, and takes what only a fence orders for unordered.
#         In the crate fences order atomic accesses alone (who waits and who wakes), which are no data,
#         so nothing in it is excepted for them. What a caller writes before an add that is merged is
#         ordered by fences, too; the tests keep it in relaxed atomics. That the fences are right is
#         checked by the models with loom.
# address: use after free, out of bounds; and leaks, at the end of each test binary.
#
# Takes a nightly toolchain if one is installed, and otherwise stable with its gates open. With the
# source of the standard library (`rustup component add rust-src`) that is built with the sanitizer,
# too. Without it the one that comes with the compiler is used: what happens inside is not seen, and
# ci/tsan-std.txt says what ThreadSanitizer is told for that. SANITIZER_SECONDS sets how long the
# stress test lasts. No job of .ci/run: the builds alone take too long.
set -euo pipefail
cd "$(dirname "$0")/.."

tests=(stress waiting_races delays_threads worker_threads limiter_bucket shutdown)
target=$(rustc -vV | sed -n 's/^host: //p')
targets=${CARGO_TARGET_DIR:-target}

if rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    toolchain=(+nightly)
else
    toolchain=()
    export RUSTC_BOOTSTRAP=1
fi
sysroot=$(rustc "${toolchain[@]}" --print sysroot)
build_std=()
suppressions=$PWD/ci/tsan-std.txt
if [[ -f $sysroot/lib/rustlib/src/rust/library/Cargo.lock ]]; then
    build_std=(-Zbuild-std)
    suppressions=
fi

export KEYQUEUE_STRESS_SECONDS=${SANITIZER_SECONDS:-10}
# Many times slower than usual.
export KEYQUEUE_TEST_PATIENCE=${KEYQUEUE_TEST_PATIENCE:-10}
# It limits the address space, of which sanitizers need terabytes.
skip=(--skip more_threads_than_can_be_started_are_refused_and_none_is_left)
sanitizers=("$@")
[[ $# -gt 0 ]] || sanitizers=(thread address)
for sanitizer in "${sanitizers[@]}"; do
    flags="-Zsanitizer=$sanitizer"
    if [[ $sanitizer == thread && ${#build_std[@]} -eq 0 ]]; then
        # Else the compiler refuses a standard library that was built without.
        flags+=" -Cunsafe-allow-abi-mismatch=sanitizer"
    fi
    echo "== $sanitizer: ${tests[*]}"
    TSAN_OPTIONS="suppressions=$suppressions ${TSAN_OPTIONS:-}" \
    ASAN_OPTIONS="detect_leaks=1 detect_stack_use_after_return=1 ${ASAN_OPTIONS:-}" \
    RUSTFLAGS="${RUSTFLAGS:-} $flags" \
    CARGO_TARGET_DIR="$targets/$sanitizer-sanitizer" \
        cargo "${toolchain[@]}" test "${build_std[@]}" --target "$target" "${tests[@]/#/--test=}" -- "${skip[@]}"
done
