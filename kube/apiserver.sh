#!/usr/bin/env bash
# Builds kube-apiserver and etcd, one binary, into a cache outside the tree, if it is not there. The tests and the
# example look there, and the tests are skipped where it is missing.
#
#   kube/apiserver.sh           builds it: about 13 minutes of CPU time, once for each version
#   kube/apiserver.sh --check   builds nothing; prints the path of the binary, or fails if there is none
#
# Where it cannot be built the script says so and succeeds.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "$here/apiserver/go.mod")
bin=${XDG_CACHE_HOME:-$HOME/.cache}/keyqueue/bin
binary=${KUBE_CONTROL_PLANE:-$bin/control-plane-$version}

if [[ -x $binary ]]; then
    echo "$binary"
    exit 0
fi
if [[ ${1:-} == --check ]]; then
    echo "there is no $binary" >&2
    exit 1
fi
if ! command -v go >/dev/null; then
    echo "there is no go: kube-apiserver is not built" >&2
    exit 0
fi
mkdir -p "$bin"
# Under a name of its own until it is complete: another run must not find half a binary.
partial=$(mktemp "$bin/.partial.XXXXXX")
trap 'rm -f "$partial"' EXIT
cd "$here/apiserver"
if nice -n 19 env CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -ldflags="-s -w" -o "$partial" . >&2; then
    chmod 755 "$partial"
    mv "$partial" "$binary"
    echo "$binary"
else
    echo "kube-apiserver cannot be built" >&2
fi
