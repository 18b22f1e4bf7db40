#!/usr/bin/env bash
# Soaks the queue, with every promise checked meanwhile: ci/soak.sh [minutes, default 1].
set -euo pipefail
cd "$(dirname "$0")/.."

cargo run --release -p keyqueue-soak -- --minutes "${1:-1}"
