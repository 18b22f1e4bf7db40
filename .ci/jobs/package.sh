#!/usr/bin/env bash
# What a user of the crate gets: checks that a project with nothing but keyqueue has few packages in its
# Cargo.lock and builds fewer, that README.md's links are not dead on a registry's page, that the crates can
# be published with the command in Cargo.toml, and that what is in the package of keyqueue builds with the oldest dependencies that it
# allows.
source "$(dirname "$0")/../lib.sh"

# at_most COUNT MOST WHAT
at_most() {
    echo "$1 $3, at most $2"
    [[ $1 -gt 0 && $1 -le $2 ]]
}

project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
mkdir "$project/src"
touch "$project/src/lib.rs"
cp Cargo.lock "$project"
cat >"$project/Cargo.toml" <<END
[package]
name = "user"
edition = "2024"

[dependencies]
keyqueue = { path = "$PWD" }
END
# Counted without the project itself. Most of the former are for platforms that quanta knows; most of the
# latter come with dashmap and quanta.
tree=$(cd "$project" && cargo tree --edges normal,build --prefix none --no-dedupe | sort -u | grep -v '^\(user\|keyqueue\) ')
at_most "$(grep -c '^name = ' <(grep -v '"user"' "$project/Cargo.lock"))" 42 "packages in a user's Cargo.lock"
at_most "$(wc -l <<<"$tree")" 18 "dependencies that a user builds"

# A relative link is resolved in the package.
packaged=$(cargo package -p keyqueue --list --allow-dirty)
dead=0
for link in $(grep -oE '\]\([^)#]+' README.md | cut -c3- | grep -v '^https://'); do
    grep -qxF "$link" <<<"$packaged" || {
        echo "README.md links to $link, which is not in the package" >&2
        dead=1
    }
done
[[ $dead -eq 0 ]]

publish=$(sed -n 's/^#     \(cargo publish .*\)/\1/p' Cargo.toml)
echo "+ $publish --dry-run --allow-dirty"
$publish --dry-run --allow-dirty

# The oldest versions of the dependencies that Cargo.toml allows.
minimal=$(realpath -m "$target/minimal")
cargo package -p keyqueue --no-verify --allow-dirty
tar --extract --touch --gzip --file "$target"/package/keyqueue-[0-9]*.crate --directory "$project"
cd "$project"/keyqueue-[0-9]*
rm Cargo.lock
RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
CARGO_TARGET_DIR=$minimal cargo check --all-features
