#!/usr/bin/env bash
# Counts the instructions of single paths through the queue (benches/paths.rs) under valgrind, and
# fails if one takes over a tenth more than .ci/jobs/instructions.txt has for it. Instructions, because
# clocks are noisy; a tenth, because compilers differ.
#
#     .ci/jobs/instructions.sh [--bless]      --bless: writes what it has counted into that file
source "$(dirname "$0")/../lib.sh"

bless=${1:-}
known=.ci/jobs/instructions.txt
tolerance=10 # percent
count=50000

if ! command -v valgrind >/dev/null; then
    as_root=()
    [[ $EUID -eq 0 ]] || as_root=(sudo -n)
    if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" apt-get install -y valgrind; } >/dev/null 2>&1; then
        skip instructions "there is no valgrind, and apt-get cannot install it"
        exit 0
    fi
fi

program=$(cargo bench -p keyqueue-benches --bench paths --no-run --message-format json |
    sed -n 's/.*"executable":"\([^"]*\/paths-[^"]*\)".*/\1/p')

# total PATH COUNT: the instructions of a run that goes this often along a path.
total() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

# per_operation PATH: the difference between a run of 2n and one of n.
per_operation() {
    local once twice
    if ! once=$(total "$1" "$count") || ! twice=$(total "$1" $((2 * count))) || ! ((0 < once && once < twice)); then
        echo "$1 was not counted" >&2
        return 1
    fi
    echo "$1 $(((twice - once + count / 2) / count))"
}
export -f total per_operation
export program count

counted=$(mktemp)
trap 'rm -f "$counted"' EXIT
"$program" --list | xargs -P "$(nproc)" -I {} bash -c 'set -euo pipefail; per_operation {}' >"$counted"

if [[ $bless == --bless ]]; then
    # In the order of the program, whichever was done first.
    for path in $("$program" --list); do grep "^$path " "$counted"; done >"$known"
fi
awk -v tolerance="$tolerance" '
    FILENAME == ARGV[1] { known[$1] = $2; next }
    {
        counted[$1]
        verdict = "ok"
        if (!($1 in known)) verdict = "UNKNOWN: run .ci/jobs/instructions.sh --bless"
        else if ($2 > known[$1] * (1 + tolerance / 100)) verdict = "MORE"
        else if ($2 < known[$1] * (1 - tolerance / 100)) verdict = "fewer: bless it"
        if (verdict ~ /^[A-Z]/) failed++
        printf "%-18s %6d instructions, %6d known: %s\n", $1, $2, known[$1], verdict
    }
    END {
        for (path in known) if (!(path in counted) && ++failed) print path " WAS NOT COUNTED"
        exit failed > 0 || length(counted) == 0
    }' "$known" "$counted"
