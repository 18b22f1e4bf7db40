# For the scripts in .ci/jobs, which source it: goes to the root of the repository.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
# The packages with servers, and their features but those of keyqueue-kafka, which need libraries of the system.
packages_with_servers=(keyqueue-nats keyqueue-nats-model dispatch keyqueue-kube bookkeeper keyqueue-board keyqueue-servers keyqueue-kafka ledger)
selected=("${packages_with_servers[@]/#/--package=}" --features=keyqueue-board/{metrics,nats,kafka,top})
cache=${XDG_CACHE_HOME:-$HOME/.cache}/keyqueue

# skip WHAT WHY: a part of a job cannot run here. `.ci/run` counts it and names it; with CI_STRICT=1 the job fails.
skip() {
    echo "skipped: $1: $2"
    [[ -z ${KEYQUEUE_SKIPPED:-} ]] || echo "job $1: $2" >>"$KEYQUEUE_SKIPPED"
    [[ ${CI_STRICT:-} != 1 ]]
}

# tool NAME VERSION SHA256: installs a program of cargo's, of this version, into a cache outside of the tree, and puts it
# on the PATH: from the wheel with this hash, which takes seconds, or from its source, which takes minutes.
tool() {
    local home=$cache/tools/$1-$2
    PATH=$home/bin:$PATH
    [[ ! -x $home/bin/$1 ]] || return 0
    local wanted
    wanted=$(mktemp)
    echo "astral-dev-toolchain-$1==$2 --hash=sha256:$3" >"$wanted"
    python3 -m pip install --quiet --require-hashes --no-deps --only-binary :all: --target "$home" -r "$wanted" ||
        cargo install --locked --root "$home" "$1@$2" ||
        echo "ci: $1 $2 cannot be installed"
    rm -f "$wanted"
    [[ -x $home/bin/$1 ]]
}

# has_miri: installs Miri, if it is missing.
has_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 || rustup component add --toolchain nightly miri rust-src
}

# component NAME: a part of the toolchain.
component() {
    cargo "$1" --version >/dev/null 2>&1 || rustup component add "$2"
}
