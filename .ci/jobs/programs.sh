#!/usr/bin/env bash
# The packages with servers, the soak and the comparison:
# .ci/jobs/programs.sh build|doctests|nats|dispatch|nats-long|kafka|ledger|kube|board|browser|soak|compare|apiserver.
#
# `build` builds their tests and programs with one call, so that each dependency is compiled once, and by Clippy, which lints what it
# compiles: to lint them apart would compile the dependencies' metadata again. It installs the servers, too. The others run what it has
# built, without cargo, so that they wait for no build. Alone, each builds first. `browser`, `soak` and `compare` build what only they run.
source "$(dirname "$0")/../lib.sh"

mkdir -p "$target/ci"
built=$target/ci/programs

# build ARGUMENT...: builds, and notes what: a line for each program with its package, `test` or its kind, its name, the package's
# directory, the program.
build() {
    cargo build --profile test --message-format json-render-diagnostics "$@" >"$built.json"
    python3 - "$built.json" >"$built.partial" <<'END'
import json, os, sys
for line in open(sys.argv[1]):
    message = json.loads(line)
    if message.get("executable"):
        directory = os.path.dirname(message["manifest_path"])
        kind = "test" if message["profile"]["test"] else message["target"]["kind"][0]
        package = message["package_id"].split("#")[-1].split("@")[0]
        package = package if not package[0].isdigit() else os.path.basename(directory)
        print(package, kind, message["target"]["name"], directory, message["executable"])
END
    mv "$built.partial" "$built"
}

# by_clippy COMMAND...: with Clippy for the compiler of the workspace, and warnings as errors.
by_clippy() {
    RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings "$@"
}
with_servers() {
    component clippy clippy
    # The tests of nats and of the board start it.
    nats/server.sh
    kafka/broker.sh
    by_clippy build "${selected[@]}" --tests --bins --examples
}

# only NAME ARGUMENT...: builds what only one job runs.
only() {
    built=$target/ci/$1
    build "${@:2}"
}

# run PACKAGE KIND NAME [ARGUMENT]...: a program, or the tests of any name: `*`.
run() {
    local found=0 failed=0 package kind name directory program
    while read -r package kind name directory program; do
        [[ $package == "$1" && $kind == "$2" && $name == $3 ]] || continue
        found=1
        echo "+ $package $kind $name"
        (cd "$directory" && CARGO_MANIFEST_DIR=$directory "$program" "${@:4}") </dev/null || failed=1
    done <"$built"
    [[ $found -eq 1 && $failed -eq 0 ]]
}

# all: runs each line that it reads, also after one has failed.
all() {
    local failed=0 words
    while read -ra words; do
        "${words[@]}" || failed=1
    done
    [[ $failed -eq 0 ]]
}

# Two jobs that run beside each other build once.
[[ " build browser soak compare doctests " == *" $1 "* || -e $built ]] || (flock 9 && { [[ -e $built ]] || with_servers; }) 9>"$built.lock"
case $1 in
build)
    # What the others run stays as it is until this has ended.
    (flock 9 && with_servers) 9>"$built.lock"
    ;;
doctests)
    by_clippy cargo test "${selected[@]}" --doc
    ;;
nats)
    all <<'END'
run keyqueue-nats-model test *
run keyqueue-nats test *
END
    ;;
dispatch)
    all <<'END'
run dispatch test *
run dispatch bin dispatch run
END
    ;;
# The whole model, a long backlog, and the faults with the other values of `coalesce`.
nats-long)
    export KEYQUEUE_NIGHT=1
    all <<'END'
run keyqueue-nats-model test *
run keyqueue-nats test made_again --ignored
run dispatch test failures --ignored
END
    ;;
kafka)
    # They wait for time-outs of brokers more than for processors.
    run keyqueue-kafka test '*' --test-threads 4
    ;;
ledger)
    all <<'END'
run ledger test *
run ledger bin ledger run
END
    ;;
# On a real API server, if it is built, which takes a quarter of an hour.
kube)
    all <<'END'
run keyqueue-servers test *
run keyqueue-kube test *
run bookkeeper test *
END
    ;;
board)
    run keyqueue-board test '*'
    ;;
# In a real browser, if the distribution has one.
browser)
    if ! command -v chromedriver >/dev/null; then
        as_root=()
        [[ $EUID -eq 0 ]] || as_root=(sudo -n)
        export DEBIAN_FRONTEND=noninteractive
        { timeout 60 "${as_root[@]}" apt-get update -qq &&
            timeout 300 "${as_root[@]}" apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 ||
            echo "chromium cannot be installed"
    fi
    axe=$cache/bin/axe-core-4.14.1.js
    if [[ ! -e $axe ]]; then
        work=$(mktemp -d)
        (cd "$work" && npm pack --silent axe-core@4.14.1 &&
            echo "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745  axe-core-4.14.1.tgz" | sha256sum --check --quiet &&
            tar xzf axe-core-4.14.1.tgz && mkdir -p "$cache/bin" && cp package/axe.min.js "$axe") >/dev/null ||
            echo "axe-core cannot be installed"
        rm -rf "$work"
    fi
    nats/server.sh
    by_clippy only browser "${selected[@]}" --package=keyqueue-board-demo --test browser --bin keyqueue-board-demo
    run keyqueue-board test browser
    # And that the README's pictures can be taken, of the demo, which prints its address.
    coproc demo { exec "$(awk '$1 == "keyqueue-board-demo" && $2 == "bin" { print $5; exit }' "$built")" 127.0.0.1:0; }
    trap 'kill "$demo_PID"' EXIT
    read -r address <&"${demo[0]}"
    KEYQUEUE_DEMO=$address KEYQUEUE_PICTURES=$(realpath "$target/ci") run keyqueue-board test browser --ignored
    ;;
soak)
    # With the features of `cargo test`, of which it is a part.
    only soak --bin keyqueue-soak
    run keyqueue-soak bin keyqueue-soak --minutes "${SOAK_MINUTES:-1}"
    ;;
# The same on a real API server, which is built first, and which must be there.
apiserver)
    kube/apiserver.sh
    CI_STRICT=1 "$0" kube
    ;;
# Runs every workload once, far too short to measure anything: they check what was delivered. Where there is a `go`
# that can get its modules, the contenders in Go have to be among them.
compare)
    everybody=()
    if ! command -v go >/dev/null || ! (cd benches/compare/go && go mod download); then
        skip "contenders in Go" "there is no go, or it cannot get its modules"
    else
        (cd benches/compare/go && go vet .)
        everybody=(--everybody)
    fi
    cargo test -p compare
    cargo run -p compare -- --smoke "${everybody[@]}"
    ;;
esac
