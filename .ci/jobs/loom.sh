#!/usr/bin/env bash
# The models of loom-tests, each as a process of its own, as many at once as there are processors, the longest first. The cfg
# changes every crate, so a target directory of its own saves building all twice.
source "$(dirname "$0")/../lib.sh"

export RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_loom" CARGO_TARGET_DIR=$target/loom
programs=$(cargo test -p keyqueue-loom-tests --release --no-run --message-format json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
models=$(for program in $programs; do
    "$program" --list --format terse | sed -n "s|^\(.*\): test$|$program \1|p"
done)
longest='every_drainer_returns|a_late_popper_does_not|an_add_beside_a_drain|an_earlier_delay_wakes'
{ grep -E "$longest" <<<"$models"; grep -vE "$longest" <<<"$models"; } |
    xargs -P "$(nproc)" -L 1 bash -c '
        printed=$("$0" --exact "$1" --nocapture 2>&1) && ended=0 || ended=$?
        # In one piece.
        echo "$printed"
        # 255 would end xargs.
        [[ $ended -eq 0 ]]'
# The program of the page on model checking.
RUSTDOCFLAGS="--cfg keyqueue_loom" cargo test -p keyqueue-loom-tests --doc --release
