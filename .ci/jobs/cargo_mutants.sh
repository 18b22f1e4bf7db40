#!/usr/bin/env bash
# cargo-mutants over the parts that separate tests look at closely, where each of its changes should
# fail a test: .ci/jobs/cargo_mutants.sh [PART]... (all of them by default, which takes two hours or
# so, and is no job of .ci/run).
#
# A change is tried on those tests first that notice most; what survives them is tried on others that are
# about the part. What survives all is listed, and explained in checks/mutants/README.md.
# Works on a copy of the tree, and keeps all it learned in target/mutants/<part>.
source "$(dirname "$0")/../lib.sh"

command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants@27.1.0

# PART | FILES [ARGUMENTS] | the tests of a pass, as cargo's arguments, and after `--` those of
# cargo test | ... Only these tests are built, for that is what takes the time. (Examples in the
# documentation cannot be built alone.) They have to pass without a change first: arguments that
# cargo does not take would notice every change.
parts() {
    cat <<'END'
state|src/keys/state/mod.rs|--lib -- state::|--test=queue -- core::
table|src/keys/table.rs|--lib -- table::|--lib -- keys::
slab|src/keys/slab/mod.rs|--lib -- slab::|--test=memory
fifo|src/{fifo/*.rs,fifo/ring/mod.rs,keys/hash.rs}|--lib -- -- ring:: fifo:: overflow:: hash::|--test=queue -- core::
waiting|src/wait/mod.rs|--lib -- wait::|--test=queue -- waiting::
timer|src/timer/{wheel/mod,slot}.rs|--lib -- timer::|--test=queue -- delays::|--test=memory
limiter|src/limiter/*.rs|--package=keyqueue-tests --test=limits|--lib -- limiter::|-- --doc limiter::
backoff|src/backoff/*.rs --features tokio|--package=keyqueue-tests --test=limits|-- --doc backoff::
END
}

known=$(parts | cut -d '|' -f 1)
for part in "${@:-$known}"; do
    [[ $'\n'$known$'\n' == *$'\n'$part$'\n'* ]] || {
        echo "there is no part $part among" $known >&2
        exit 2
    }
done
set -f # No star is for the shell.
parts | while IFS='|' read -ra columns; do
    part=${columns[0]}
    [[ $# -eq 0 || " $* " == *" $part "* ]] || continue
    out=${CARGO_TARGET_DIR:-target}/mutants/$part
    rm -rf "$out"
    mkdir -p "$out"
    for tests in "${columns[@]:2}"; do
        echo "== $part: $tests"
        arguments=() prefix=--cargo-arg=
        for word in $tests; do
            [[ $word != -- ]] || prefix=
            arguments+=("$prefix$word")
        done
        # 2: some were missed; 3: some took too long, and so were noticed.
        cargo mutants --profile mutants --file ${columns[1]} --output "$out" --iterate --no-shuffle \
            --colors never --timeout 20 "${arguments[@]}" </dev/null || [[ $? == [23] ]]
    done
    echo "== $part: survivors"
    cat "$out/mutants.out/missed.txt"
done
