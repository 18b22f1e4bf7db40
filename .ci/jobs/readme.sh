#!/usr/bin/env bash
# Runs the two set-up commands of README.md, or of another page, as they are written in its first `sh` block.
source "$(dirname "$0")/../lib.sh"
page=${1:-README.md}

mapfile -t commands < <(awk '
    /^```sh$/ { inside = 1; next }
    inside && /^```$/ { exit }
    inside' "$page")
if [[ ${#commands[@]} -ne 2 ]]; then
    echo "ci: the first \`sh\` block of $page has ${#commands[@]} lines, not 2 commands" >&2
    exit 1
fi
for command in "${commands[@]}"; do
    echo "+ $command"
    bash -euo pipefail -c "$command"
done
