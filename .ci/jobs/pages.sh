#!/usr/bin/env bash
# Checks what the pages say about links, programs and folders. `--write` mends what follows from the rest: the links at
# the end of each page of src/docs, and what internals.md shows of the folders.
source "$(dirname "$0")/../lib.sh"

failed=0
.ci/jobs/architecture.py "$@" || failed=1
.ci/jobs/pages.py "$@" || failed=1
exit "$failed"
