#!/usr/bin/env bash
# Installs nats-server into a cache outside the tree, with Go, if it is not there. The tests and the example look
# there. Where it cannot be installed it says so and succeeds: the tests are skipped then.
set -euo pipefail

version=v2.15.2
bin=${XDG_CACHE_HOME:-$HOME/.cache}/keyqueue/bin
if [[ -n ${NATS_SERVER:-} ]] || { [[ -x $bin/nats-server ]] && "$bin/nats-server" --version | grep -q "$version"; }; then
    echo "the server is ${NATS_SERVER:-$bin/nats-server}"
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "there is no go: nats-server is not installed"
    exit 0
fi
mkdir -p "$bin"
GOBIN=$bin go install "github.com/nats-io/nats-server/v2@$version" && echo "the server is $bin/nats-server" ||
    echo "nats-server cannot be installed"
