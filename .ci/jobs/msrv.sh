#!/usr/bin/env bash
# Builds the crate, with all features, with the oldest compiler that Cargo.toml promises. Installs it if it can.
source "$(dirname "$0")/../lib.sh"

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! cargo "+$oldest" --version >/dev/null 2>&1 &&
    ! rustup toolchain install "$oldest" --profile minimal >/dev/null 2>&1; then
    skip msrv "no toolchain $oldest"
    exit 0
fi
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv" cargo "+$oldest" check -p keyqueue --all-features
