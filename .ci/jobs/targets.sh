#!/usr/bin/env bash
# Checks that the crate compiles for other processors and systems, with all features, and keyqueue-kube without its own.
source "$(dirname "$0")/../lib.sh"

targets=()
for triple in i686-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-pc-windows-msvc aarch64-apple-darwin; do
    if rustup target add "$triple"; then
        targets+=("--target=$triple")
    else
        skip "$triple" "rustup cannot add the target"
    fi
done
[[ ${#targets[@]} -eq 0 ]] || cargo check -p keyqueue --all-features "${targets[@]}"
# All other builds of it have its feature.
cargo check -p keyqueue-kube --features k8s-openapi/latest
