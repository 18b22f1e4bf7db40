#!/usr/bin/env bash
#!/usr/bin/env bash
# Lints and tests what only optional features build, all of them together: metrics, serde, tokio, tracing.
# (The tests of README.md's set-up run without them.)
set -euo pipefail
cd "$(dirname "$0")/.."
ci/setup.sh clippy clippy

cargo clippy -p keyqueue --all-features --all-targets -- -D warnings
cargo build -p keyqueue --all-features --example top
cargo test -p keyqueue --all-features --lib --test metrics --test snapshot --test top --test tracing \
    --test worker --test worker_async --test worker_threads
cargo test -p keyqueue --all-features --doc
