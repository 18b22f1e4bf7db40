#!/usr/bin/env bash
# Compares the public interface of the crate with the list of it in interface.txt, so that no change of it goes in unseen:
# .ci/jobs/interface.sh [--write]. `--write` replaces the list; CHANGELOG.md has to say what has changed.
source "$(dirname "$0")/../lib.sh"

# Its README says which nightly toolchains it can read.
version=0.52.0
home=$cache/tools/cargo-public-api-$version
if ! cargo +nightly --version >/dev/null 2>&1; then
    skip interface "there is no nightly toolchain"
    exit 0
fi
[[ -x $home/bin/cargo-public-api ]] || cargo install --quiet --locked --root "$home" "cargo-public-api@$version"
PATH=$home/bin:$PATH

known=.ci/jobs/interface.txt
found=$(mktemp)
trap 'rm -f "$found"' EXIT
# Without what every type has, and without the traits that the compiler derives or implements by itself.
CARGO_TARGET_DIR=$target/interface cargo +nightly public-api -p keyqueue --features metrics,tokio,tracing,futures-core -sss >"$found"
if [[ ${1:-} == --write ]]; then
    cp "$found" "$known"
else
    diff --unified=0 "$known" "$found" || {
        echo "the public interface has changed: look at it, say so in CHANGELOG.md, and run .ci/jobs/interface.sh --write" >&2
        exit 1
    }
fi
echo "$(wc -l <"$found") lines of interface"
