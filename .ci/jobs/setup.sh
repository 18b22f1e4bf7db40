#!/usr/bin/env bash
# Sees to it that a toolchain component is there: .ci/jobs/setup.sh <component> <cargo subcommand>.
set -euo pipefail

component=$1 subcommand=$2

if cargo "$subcommand" --version >/dev/null 2>&1; then
    exit
fi
if ! command -v rustup >/dev/null; then
    echo "ci: \`cargo $subcommand\` is missing, and there is no rustup to install $component with" >&2
    exit 1
fi
rustup component add "$component"
