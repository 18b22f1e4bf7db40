#!/usr/bin/env bash
# Checks that the licence of every package of the dependency trees, the examples' and the checks' too, is one
# of those below. Needs no network once the packages are there.
set -euo pipefail
cd "$(dirname "$0")/../.."

host=$(rustc -vV | sed -n 's/^host: //p')
for manifest in Cargo.toml fuzz/Cargo.toml; do
    cargo metadata --format-version 1 --all-features --filter-platform "$host" --manifest-path "$manifest"
done | python3 -c '
import json, re, sys

ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CC0-1.0", "ISC", "MIT", "NCSA", "Unicode-3.0", "Unlicense", "Zlib",
}

def allowed(expression):
    # "/" is how older packages write OR.
    words = re.findall(r"[()]|AND|OR|[\w.-]+(?: WITH [\w.-]+)?", expression.replace("/", " OR "))
    values = [word.lower() if word in ("AND", "OR") else word if word in "()" else str(word in ALLOWED) for word in words]
    return bool(values) and eval(" ".join(values))

packages = {package["id"]: package for line in sys.stdin for package in json.loads(line)["packages"]}
refused = [package for package in packages.values() if not allowed(package["license"] or "")]
for package in refused:
    print(package["name"], package["version"], "is under", package["license"])
print(len(packages), "packages,", len(refused), "under a licence that is not allowed")
sys.exit(bool(refused) or not packages)
'
