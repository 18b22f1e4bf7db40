#!/usr/bin/env bash
# Checks the dependencies, those of the examples and checks, too, by deny.toml: their licences, where they come from, and
# security advisories, whose database has to be fetched.
source "$(dirname "$0")/../lib.sh"

tool cargo-deny 0.20.2 ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
for manifest in Cargo.toml fuzz/Cargo.toml; do
    cargo deny --manifest-path "$manifest" --all-features --config deny.toml check licenses sources bans
done
if timeout 60 cargo deny --config deny.toml fetch db; then
    for manifest in Cargo.toml fuzz/Cargo.toml; do
        cargo deny --manifest-path "$manifest" --all-features --config deny.toml check advisories
    done
else
    skip advisories "the database cannot be fetched"
fi
