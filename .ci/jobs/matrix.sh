#!/usr/bin/env bash
# Adds an eighth of the planted bugs, another one each night, to the matrix in checks/mutants/matrix.txt: see checks/mutants/README.md.
# What the file knows already is not run again. MATRIX_PART is `3/8`, or `1/1` for all of them.
source "$(dirname "$0")/../lib.sh"

cargo run --release -p keyqueue-mutants -- --matrix unit --matrix real --matrix shuttle --part "${MATRIX_PART:-$(($(date +%s) / 86400 % 8 + 1))/8}"
