#!/usr/bin/env bash
# Checks that every promise that a test cites (C5, D7 ...) is defined on its page, and that every promise of a page is cited.
# "F1 to F3" cites three.
source "$(dirname "$0")/../lib.sh"

failed=0
# cited LETTERS PLACE...: the promises that begin with one of these letters and are cited there.
cited() {
    grep -rhoE --include='*.rs' --include='*.md' "\b[$1][0-9]{1,2}\b( to [$1][0-9]{1,2}\b)?" "${@:2}" |
        awk '{ first = substr($1, 2); last = $3 ? substr($3, 2) : first
            for (n = first + 0; n <= last + 0; n++) print substr($1, 1, 1) n }' | sort -u
}

# check PAGE LETTERS TESTS [OTHERS]: those of a page are cited in the tests, and those that are cited anywhere are on it.
check() {
    local defined
    defined=$(grep -oE "^\| [$2][0-9]+ " "$1" | tr -d '| ' | sort -u)
    echo "$1: $(wc -w <<<"$defined") promises"
    # shellcheck disable=SC2086 # Lists of folders.
    for promise in $(comm -13 <(cited "$2" $3) - <<<"$defined"); do
        echo "$promise is not cited in $3" >&2
        failed=1
    done
    # shellcheck disable=SC2086
    for promise in $(comm -23 <(cited "$2" $3 ${4:-}) - <<<"$defined"); do
        echo "$promise is cited, but not defined in $1" >&2
        failed=1
    done
    [[ -n $defined ]] || failed=1
}
check src/docs/semantics.md BCDFGLMPSTVWX "tests loom-tests fuzz checks benches/paths.rs src/docs/how_to/mod.rs board/tests" board/src
check src/docs/semantics.md A "loom-tests src/track"
check nats/docs/promises.md N "nats/src nats/tests nats/model nats/dispatch"
check kafka/docs/promises.md R "kafka/src kafka/tests kafka/ledger"
check kube/docs/promises.md K kube/tests kube/src
exit "$failed"
