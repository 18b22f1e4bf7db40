#!/usr/bin/env bash
# Plants known bugs and sees to it that they are found: ci/mutants.sh [--only WORD] [--write] [--list].
# Takes half an hour or so, so it is no job of .ci/run; that the bugs can still be planted is tested there.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo run --release --quiet -p keyqueue-mutants -- "$@"
