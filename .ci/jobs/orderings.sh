#!/usr/bin/env bash
# Checks that every atomic access in src/ says why its ordering is enough: a comment that begins
# with `// Ordering:` within the four lines above. What follows on the very next line (the second
# ordering of an exchange) belongs to the same access. The unit tests' own counters are left out.
source "$(dirname "$0")/../lib.sh"

find src kafka/src -name "*.rs" ! -name tests.rs ! -path "*/tests/*" -print0 | sort -z | xargs -0 awk '
    FNR == 1 { explained = covered = -9 }
    /^[[:space:]]*\/\/ Ordering: / { explained = FNR }
    /^[[:space:]]*\/\// { next }
    /^[[:space:]]*(pub(\([a-z]+\))? )?use / { next }
    /(^|[[:space:]])fn / { next }
    /Ordering::(Relaxed|Acquire|Release|AcqRel|SeqCst)|fence(_after_rmw)?\(/ {
        accesses++
        if (FNR - explained <= 4 || FNR - covered <= 1) {
            covered = FNR
        } else {
            printf "%s:%d: no `// Ordering:` comment:%s\n", FILENAME, FNR, $0
            missing++
        }
    }
    END {
        printf "%d lines with an ordering, %d without a reason\n", accesses, missing
        exit missing > 0 || accesses == 0
    }'
