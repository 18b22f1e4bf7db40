#!/usr/bin/env bash
# What the metrics look like to a real Prometheus: scrapes an example, asks the server, lints the exported
# text, and checks and tries the alert rules. Installs Debian's package if it can (prometheus and promtool
# are in it); where the programs are missing all the same, the tests say so and are skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends prometheus) >/dev/null || true
    # The package starts its own server where there is a system to start it.
    systemctl disable --now prometheus >/dev/null 2>&1 || true
fi
promtool --version 2>&1 | head -n 1 || echo "there is no promtool, and it cannot be installed: skipped"

# This builds the program, too, which `--test` does not.
cargo test -p keyqueue-examples --all-features --no-run
cargo test -p keyqueue-examples --all-features --test prometheus -- --nocapture
