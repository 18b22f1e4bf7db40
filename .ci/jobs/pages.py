#!/usr/bin/env python3
"""Checks what is written in Markdown: it is read on the repository's page, and the pages of `src/docs` also as
rustdoc shows them.

Every fence has a language, no program hides lines from one of its readers, and every relative link and every
anchor leads somewhere. A page of `src/docs` has its links at its end, because rustdoc and the repository's page
find the same thing in different places: rustdoc reads `src/docs/links.md` before the page, and of two links with
one name the first counts. `--write` writes the ends of the pages from `links.md`: a call leads to its row in
`calls.md`, and from there to its source.
"""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "src/docs"
NAMES, CALLS = DOCS / "links.md", DOCS / "calls.md"

DEFINITION = re.compile(r"^\[([^\]]+)\]: (\S+)$")
REFERENCE = re.compile(r"\[([^\[\]]+)\](?:\[([^\[\]]+)\])?(?![(\[])")
INLINE = re.compile(r"\]\(([^()\s]+)\)")
problems = []


def problem(page, line, text):
    problems.append(f"{page.relative_to(ROOT)}:{line}: {text}")


def prose(page):
    """The numbered lines outside of fences, with the brackets in code replaced by others."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            masked = re.sub(r"`[^`]*`", lambda code: code[0].translate(str.maketrans("[]()", "⟦⟧⦅⦆")), line)
            yield number, masked


@cache
def definitions(page):
    found = (DEFINITION.match(line) for _, line in prose(page))
    return dict(match.groups() for match in found if match)


def references(page):
    """The names of links, and the lines where they are used."""
    for number, line in prose(page):
        if not DEFINITION.match(line):
            for match in REFERENCE.finditer(line):
                yield number, match[2] or match[1]


@cache
def anchors(page):
    """The anchors of the headings, as repositories make them, and where each section begins."""
    found = {}
    for number, line in prose(page):
        if heading := re.match(r"#+ (.*)", line):
            words = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            found[words] = number
    return found


def check_fences(page):
    inside = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"\s*```(.*)", line)
        if not fence:
            if inside and inside.startswith("rust") and re.match(r"\s*#( |$)", line):
                problem(page, number, "a line that only rustdoc hides")
        elif inside is None:
            inside = fence[1]
            if not inside:
                problem(page, number, "a fence without a language")
        else:
            inside = None


def check_target(page, number, target):
    if re.match(r"(https?|data|mailto):", target):
        return
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        problem(page, number, f"there is no {target}")
    elif anchor and (file.suffix != ".md" or anchor not in anchors(file)):
        problem(page, number, f"there is no {anchor} in {file.name}")


def check_links(page):
    defined = definitions(page)
    for number, line in prose(page):
        targets = INLINE.findall(line)
        if match := DEFINITION.match(line):
            targets.append(match[2])
        for target in targets:
            check_target(page, number, target)
    for number, name in references(page):
        if name not in defined:
            problem(page, number, f"[{name}] leads nowhere")


def sections():
    """By the name of a call, its section in calls.md."""
    starts = sorted((number, words) for words, number in anchors(CALLS).items())
    found = {}
    for number, name in references(CALLS):
        found.setdefault(name, [words for start, words in starts if start < number][-1])
    return found


@cache
def code():
    """The files of `src`, each split before its `impl`s."""
    files = (file for file in sorted((ROOT / "src").glob("**/*.rs")) if "tests" not in file.parts)
    return {file: re.split(r"^(?=impl\b)", file.read_text(), flags=re.M) for file in files}


@cache
def public():
    """The public modules: what they have is named with them."""
    return {name for impls in code().values() for name in re.findall(r"^pub mod (\w+);", "".join(impls), re.M)}


def source(path):
    """The file of `src` with that item."""
    *modules, name = path.removeprefix("mod@").split("::")[1:]
    owner = modules.pop() if modules and modules[-1][0].isupper() else None
    if path.startswith("mod@"):
        return ROOT / "src" / name / "mod.rs"
    for file, impls in code().items():
        if modules and modules[-1] not in (*file.parts, file.stem):
            continue
        if file.stem in public() - set(modules):
            continue
        for part in impls if owner else ["".join(impls)]:
            header = part.partition("{")[0]
            if not owner or re.search(rf"\b{owner}\b", header):
                if re.search(rf"^\s*pub (?:const |async )*(?:fn|struct|enum|trait|type) {name}\b", part, re.M):
                    return file
    return source("::".join(["crate", *modules, owner])) if owner else None


def target_of(page, name, path, rows):
    """Where a link of a page leads on the repository's page."""
    if path == "crate#the-calls":
        file, anchor = CALLS, ""
    elif path.startswith("crate::docs::"):
        stem = DOCS.joinpath(*path.split("::")[2:])
        file, anchor = stem.with_suffix(".md"), ""
        if stem.is_dir():
            file = stem / "README.md"
    elif page == CALLS:
        file, anchor = source(path), ""
    elif name in rows:
        file, anchor = CALLS, "#" + rows[name]
    else:
        return None
    return file and os.path.relpath(file, page.parent) + anchor


def ends(write):
    """Compares the end of each page of `src/docs` with what links.md says."""
    names, rows, used = definitions(NAMES), sections(), set()
    written = {name: path for name, path in names.items() if path.removeprefix("mod@").startswith("crate")}
    for name in {name for name in names if [it.lower() for it in names].count(name.lower()) > 1}:
        problem(NAMES, 1, f"[{name}] differs from another name in case only")
    for page in sorted(DOCS.glob("**/*.md")):
        if page == NAMES:
            continue
        text = page.read_text()
        referenced = {name for _, name in references(page)}
        here = referenced & set(names)
        used |= here
        wanted = {name: target_of(page, name, path, rows) for name, path in written.items() if name in here}
        for name in [name for name, target in wanted.items() if target is None]:
            problem(page, 1, f"[{name}] has no row in calls.md, or no source")
        own = {name: target for name, target in definitions(page).items() if name in referenced - set(written)}
        for name, target in own.items():
            if name not in names and not target.startswith("http"):
                problem(page, 1, f"rustdoc does not find [{name}]: it is not in links.md")
        lines = text.rstrip("\n").split("\n")
        while DEFINITION.match(lines[-1]) or not lines[-1]:
            lines.pop()
        end = [f"[{name}]: {target}" for name, target in (own | wanted).items()]
        whole = "\n".join([*lines, *([""] if end else []), *end, ""])
        if whole != text:
            if write:
                page.write_text(whole)
            else:
                problem(page, 1, "its links are not those of links.md: run .ci/jobs/pages.sh --write")
    for name in set(names) - used:
        problem(NAMES, 1, f"no page uses [{name}]")


def main():
    ends("--write" in sys.argv)
    definitions.cache_clear()
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True, capture_output=True)
    pages = [ROOT / name for name in listed.stdout.decode().split("\n") if name and (ROOT / name) != NAMES]
    for page in pages:
        check_fences(page)
        check_links(page)
    print("\n".join(problems) or f"{len(pages)} pages")
    sys.exit(bool(problems))


main()
