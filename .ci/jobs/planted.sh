#!/usr/bin/env bash
# Plants known bugs: see checks/mutants/README.md. In three parts for two processors, beside each other, each with a tree and a
# target directory of its own: a build after a bug keeps one processor busy, and a test that hangs keeps none busy. Miri,
# which finds some of them, is installed first.
source "$(dirname "$0")/../lib.sh"

has_miri || echo "Miri cannot be installed: what only it finds is not found"
cargo build --release -p keyqueue-mutants
count=$(((3 * $(nproc) + 1) / 2)) parts=() failed=0
for part in $(seq "$count"); do
    log=$target/planted-$part.log
    CARGO_TARGET_DIR=$(realpath "$target")/planted-$part "$target/release/keyqueue-mutants" --part "$part/$count" >"$log" 2>&1 &
    parts+=("$!")
done
for part in $(seq "$count"); do
    wait "${parts[part - 1]}" || failed=1
    cat "$target/planted-$part.log"
done
exit "$failed"
