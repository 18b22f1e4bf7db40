#!/usr/bin/env bash
# The models of loom-tests, each as a process of its own, as many at once as there are processors: .ci/jobs/loom.sh [long].
#
# Fourteen of them take ten seconds or more at their bound of preemptions. By day they have one preemption less, which takes
# seconds; `long`, for the night, runs these fourteen at their bound. The cfg changes every crate, so that the models have a target
# directory of their own.
source "$(dirname "$0")/../lib.sh"

export RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_loom" CARGO_TARGET_DIR=$target/loom
less='a_late_popper_does_not_overtake_the_ring 2
an_add_beside_a_drain_is_refused_or_drained 2
an_add_beside_a_shut_down_is_refused_or_delivered 2
an_add_through_a_handle_beside_a_shut_down_is_refused_or_delivered 2
a_hold_wakes_the_sleeping_driver 1
an_earlier_delay_wakes_the_sleeping_driver 1
every_drainer_returns 2
a_dirty_key_is_delivered_after_a_shut_down 4
a_dropped_retry_whose_report_is_cancelled_is_left_once 1
a_getter_that_lingers_keeps_no_wake_up 1
a_retry_beside_a_drain_is_delivered_again 1
messages_are_done_or_left_in_order_beside_a_put_and_an_end 1
a_batch_is_halved_beside_a_put_and_a_shut_down 1
a_delay_that_another_thread_has_moved_to_the_wheel_wakes_the_driver 1'

programs=$(cargo test -p keyqueue-loom-tests --release --no-run --message-format json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
models=$(for program in $programs; do
    "$program" --list --format terse | sed -n "s|^\(.*\): test$|$program \1|p" || exit 1
done)
# A line for each: its program, its name and, if it has less, its bound.
models=$(awk 'NR == FNR { bound[$1] = $2; less++; next } $2 in bound { $3 = bound[$2]; seen++ } { print }
    END { exit seen != less }' <(echo "$less") <(echo "$models"))
case ${1:-short} in
short) ;;
long) models=$(awk 'NF == 3 { print $1, $2 }' <<<"$models") ;;
*)
    echo "usage: $0 [long]" >&2
    exit 2
    ;;
esac
xargs -P "$(nproc)" -L 1 bash -c '
    [[ -z ${2:-} ]] || export LOOM_MAX_PREEMPTIONS=$2
    printed=$("$0" --exact "$1" --nocapture 2>&1) && ended=0 || ended=$?
    # In one piece.
    echo "$printed"
    # 255 would end xargs.
    [[ $ended -eq 0 ]]' <<<"$models"
# The program of the page on model checking.
[[ ${1:-} == long ]] || RUSTDOCFLAGS="--cfg keyqueue_loom" cargo test -p keyqueue-loom-tests --doc --release
