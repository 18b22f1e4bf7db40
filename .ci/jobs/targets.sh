#!/usr/bin/env bash
# Checks that the crate compiles for other processors and systems, with all features.
source "$(dirname "$0")/../lib.sh"

for triple in i686-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-pc-windows-msvc aarch64-apple-darwin; do
    if ! rustup target add "$triple"; then
        skip "$triple" "rustup cannot add the target"
        continue
    fi
    cargo check -p keyqueue --all-features --target "$triple"
done
