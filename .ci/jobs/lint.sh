#!/usr/bin/env bash
# Lints, with warnings as errors: .ci/jobs/lint.sh [core]. Everything, with all features at once and for the model checkers, and sees
# whether all planted bugs still build. Or only `core`: the crate, what checks it, and the fuzz targets. programs.sh lints the packages
# with servers then, as it builds them.
source "$(dirname "$0")/../lib.sh"

component clippy clippy
if [[ ${1:-} == core ]]; then
    elsewhere=("${packages_with_servers[@]}" keyqueue-board-demo compare)
else
    # The features of keyqueue-kafka need libraries of the system.
    elsewhere=(keyqueue-kafka ledger)
    cargo clippy "${elsewhere[@]/#/--package=}" --all-targets -- -D warnings
    cargo run -p keyqueue-mutants -- --build
fi
cargo clippy --workspace "${elsewhere[@]/#/--exclude=}" --all-features --all-targets -- -D warnings
cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings
[[ ${1:-} != core ]] || exit 0
# What only the model checkers build.
for checker in loom shuttle; do
    RUSTFLAGS="${RUSTFLAGS:-} --cfg keyqueue_$checker" CARGO_TARGET_DIR="$target/$checker" \
        cargo clippy -p "keyqueue-$checker-tests" --all-targets -- -D warnings
done
