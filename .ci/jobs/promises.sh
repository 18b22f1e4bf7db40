#!/usr/bin/env bash
# Checks that every promise that a test cites (C5, D7 ...) is defined in src/docs/semantics.md, or
# for keyqueue-nats in nats/docs/promises.md and for keyqueue-kube in kube/docs/promises.md; and that
# every promise of keyqueue-kube is cited.
set -euo pipefail
cd "$(dirname "$0")/../.."

cited=$(grep -rhoE --include='*.rs' --include='*.md' '\b[BCDFGLMPSTVW][0-9]+\b' tests loom-tests fuzz checks | sort -Vu)
missing=0
for promise in $cited; do
    grep -q "^| $promise | " src/docs/semantics.md || {
        echo "$promise is cited, but not defined in src/docs/semantics.md" >&2
        missing=1
    }
done
# Those of keyqueue-nats are on a page of its own.
for promise in $(grep -rhoE --include='*.rs' '\bN[0-9]+\b' nats/src nats/tests nats/dispatch | sort -Vu); do
    cited+=" $promise"
    grep -q "^| $promise | " nats/docs/promises.md || {
        echo "$promise is cited, but not defined in nats/docs/promises.md" >&2
        missing=1
    }
done
for promise in $(grep -rhoE --include='*.rs' '\bK[0-9]+\b' kube/src kube/tests | sort -Vu); do
    cited+=" $promise"
    grep -q "^| $promise | " kube/docs/promises.md || {
        echo "$promise is cited, but not defined in kube/docs/promises.md" >&2
        missing=1
    }
done
for promise in $(grep -oE '^\| K[0-9]+' kube/docs/promises.md | tr -d '| '); do
    grep -rqw --include='*.rs' "$promise" kube/tests || {
        echo "$promise is not cited in kube/tests" >&2
        missing=1
    }
done
echo "$(wc -w <<<"$cited") promises are cited"
[[ $missing -eq 0 && -n $cited ]]
