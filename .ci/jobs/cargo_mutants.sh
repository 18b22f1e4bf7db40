#!/usr/bin/env bash
# cargo-mutants over the parts that separate tests look at closely, where each of its changes should fail a
# test: .ci/jobs/cargo_mutants.sh [state|table|slab|fifo|waiting|timer|limiter|backoff]... (all of them by default, which takes
# two hours or so, and is no job of .ci/run).
#
# A change is tried on those tests first that notice most; what survives them is tried on others that are
# about the part. What survives all is listed, and explained in checks/mutants/README.md.
# Works on a copy of the tree, and keeps all it learned in target/mutants/<part>.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants

# begin PART FILES [ARGUMENTS]: which code the next passes are about.
begin() {
    part=$1
    out=${CARGO_TARGET_DIR:-target}/mutants/$part
    mutants=(cargo mutants --profile mutants --file "$2" --output "$out" --iterate --no-shuffle --colors never
        --timeout 20 "${@:3}")
    rm -rf "$out"
    mkdir -p "$out"
}

# pass [TARGETS] [-- ARGUMENTS]: has what survived so far tried by the tests of these targets of cargo's. Only
# they are built, for that is what takes the time. (Examples in the documentation cannot be built alone.) The tests
# have to pass without a change first: arguments that cargo does not take would notice every change.
pass() {
    echo "== $part: $*"
    local targets=()
    while [[ $# -gt 0 && $1 != -- ]]; do
        targets+=("--cargo-arg=$1")
        shift
    done
    # 2: some were missed; 3: some took too long, and so were noticed.
    "${mutants[@]}" "${targets[@]}" "$@" || [[ $? == [23] ]]
}

survivors() {
    echo "== $part: survivors"
    cat "$out/mutants.out/missed.txt"
}

parts=("$@")
[[ $# -gt 0 ]] || parts=(state table slab fifo waiting timer limiter backoff)
for name in "${parts[@]}"; do
    case $name in
    state)
        begin state src/keys/state/mod.rs
        pass --lib -- state::
        pass --test=core
        ;;
    table)
        begin table 'src/keys/table.rs'
        pass --lib -- table::
        pass --lib -- keys::
        ;;
    slab)
        begin slab src/keys/slab/mod.rs
        pass --lib -- slab::
        pass --test=memory
        ;;
    fifo)
        begin fifo 'src/{fifo/*.rs,fifo/ring/mod.rs,fifo/overflow/mod.rs,keys/hash.rs}'
        pass --lib -- -- ring:: fifo:: overflow:: hash::
        pass --test=core
        ;;
    waiting)
        begin waiting src/wait/mod.rs
        pass --lib -- wait::
        pass --test=waiting
        ;;
    timer)
        begin timer 'src/timer/{wheel/mod,level,slot}.rs'
        pass --lib -- timer::
        pass --test=delays --test=memory
        ;;
    limiter)
        begin limiter 'src/limiter/*.rs'
        pass --test=limits
        pass --lib -- limiter::
        pass -- --doc limiter::
        ;;
    backoff)
        begin backoff 'src/backoff/*.rs' --features tokio
        pass --test=limits
        pass -- --doc backoff::
        ;;
    *)
        echo "usage: $0 [state|table|slab|fifo|waiting|timer|limiter|backoff]..." >&2
        exit 2
        ;;
    esac
    survivors
done
