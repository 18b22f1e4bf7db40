#!/usr/bin/env bash
# Runs the tests under Miri, an interpreter that notices undefined behaviour, for the better part of an hour.
#
# It sees what the sanitizers cannot: references that overlap, pointers used beyond what they may
# reach, races without regard to luck. It knows fences, and lets loads return stale values where the
# orderings allow it. Of the orders in which threads may run it tries one a seed; loom tries all of
# them, of small models.
#
# It is some hundred times slower, so the tests do a hundredth of their work (`scaled` in
# tests/common), and those that cannot are ignored there.
#
# The target is one that quanta knows no cycle counter of, as Miri has none either: there the clock
# asks the system. It is also big-endian, so what depends on the order of bytes fails there.
#
# Nothing is suppressed: isolated, with the leak check, and by Stacked Borrows. MIRI_SEEDS sets how
# many seeds the races have, 8 by default, and what checks the visibility of data, 20 by default.
#
# Needs a nightly toolchain, and says so if there is none; installs Miri if that is missing.
source "$(dirname "$0")/../lib.sh"

if ! rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
    skip miri "no nightly"
    exit 0
fi
if ! has_miri; then
    skip miri "the nightly has no Miri, and it cannot be installed"
    exit 0
fi

# Panics are part of some tests; telling where each came from takes longer than the rest.
export RUST_BACKTRACE=0
# The flags change every crate.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
# A `compare_exchange_weak` fails one time in ten, instead of four in five: crossbeam backs off
# further each time, and most of the run would be that. proptest has two cases each, and keeps
# nothing in files, which an isolated program lacks. Miri counts time by the steps that it takes: what hangs may take
# ten times longer to be noticed.
flags="-Zmiri-compare-exchange-weak-failure-rate=0.1"
flags+=" -Zmiri-env-set=PROPTEST_CASES=2 -Zmiri-env-set=PROPTEST_DISABLE_FAILURE_PERSISTENCE=1"
flags+=" -Zmiri-env-set=KEYQUEUE_TEST_PATIENCE=10"
export MIRIFLAGS="$flags ${MIRIFLAGS:-}"

# run <PARTS: each line is the arguments of a `cargo test`, as many at once as there are processors. What a part prints is in a
# file of its own until it has ended. If one fails, the others are run all the same. A part that runs no test fails.
failed=0
run() {
    xargs -P "$(nproc)" -L 1 bash -c '
        log=$CARGO_TARGET_DIR/$(tr -sc "a-z\n" - <<<"$*").log
        echo "== $*" >"$log"
        cargo +nightly miri test --target s390x-unknown-linux-gnu "$@" >>"$log" 2>&1 && ended=0 || ended=$?
        cat "$log"
        grep -q "[1-9][0-9]* passed" "$log" || ended=1
        # 255 would end xargs.
        [[ $ended -eq 0 ]]' miri || failed=1
}

mkdir -p "$CARGO_TARGET_DIR"
# Of the library without the wheel, the limiters, rates and numbers, which are safe code in one thread.
run <<'END'
-p keyqueue --test order
-p keyqueue --lib -- --skip wheel --skip limiter --skip time::rate --skip nanos
-p keyqueue --test queue -- core::states:: core::owned:: shutdown::
-p keyqueue-soak
END
flags=$MIRIFLAGS
# Small races, each once with every seed.
MIRIFLAGS="$flags -Zmiri-many-seeds=0..${MIRI_SEEDS:-8}"
run <<'END'
-p keyqueue --lib -- --exact fifo::tests::none_is_answered_only_when_nothing_is_left
-p keyqueue --lib -- --exact wait::tests::no_wake_up_is_lost_in_a_race_of_waiting_and_publishing
-p keyqueue --test queue -- --exact shutdown::end::handles_race_with_the_end_of_their_queue
END
# Data that only the queue orders. More threads are preempted than by default. Miri orders two threads if one gets memory that
# the other has freed, which is no promise of the queue's: not across threads.
MIRIFLAGS="$flags -Zmiri-preemption-rate=0.05 -Zmiri-address-reuse-cross-thread-rate=0"
MIRIFLAGS+=" -Zmiri-many-seeds=0..${MIRI_SEEDS:-20}"
run <<'END'
-p keyqueue --lib -- visibility
-p keyqueue --test visibility
END
exit "$failed"
