#!/usr/bin/env bash
# Plants known bugs: see checks/mutants/README.md. Miri, which finds some of them, is installed first.
source "$(dirname "$0")/../lib.sh"

has_miri || echo "Miri cannot be installed: what only it finds is not found"
cargo run --release -p keyqueue-mutants
