#!/usr/bin/env bash
# Adds an eighth of the planted bugs, another one each night, to the matrix in checks/mutants/matrix.txt: see checks/mutants/README.md.
# What the file knows already is not run again. MATRIX_PART is `3/8`, or `1/1` for all of them. Ends after MATRIX_MINUTES, 30 by default:
# the next run goes on. Fails if by then no bug was run, or one could not be.
source "$(dirname "$0")/../lib.sh"

cargo build --release -p keyqueue-mutants
ended=0 log=$target/matrix.log
timeout "${MATRIX_MINUTES:-30}m" "$target/release/keyqueue-mutants" --matrix unit --matrix real --matrix shuttle \
    --part "${MATRIX_PART:-$(($(date +%s) / 86400 % 8 + 1))/8}" | tee "$log" || ended=$?
# As far as it has come by then.
[[ $ended -eq 0 ]] || { [[ $ended -eq 124 ]] && grep -q " s building)$" "$log" && ! grep "COULD NOT RUN" "$log"; }
