#!/usr/bin/env python3
"""Checks that `src/docs/internals.md` and its picture show the folders of `src` as the code has them: which folder
uses which (by its `crate::` paths), which files have unsafe code, and that the files that the page names exist.

The table of parts is in order: a folder should use only those below it. `--write` fills in the column "uses", where an
arrow that goes up is bold, and draws the picture. An arrow that follows from others is not drawn.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
PAGE, PICTURE = SRC / "docs/internals.md", SRC / "docs/architecture.svg"
# What only names what others have.
NOT_PARTS = {"lib", "internals", "docs"}

ROW = re.compile(r"^\| `(\w+)/` \| (.*) \|(.*)\|$", re.M)


def code(file):
    """The lines of a file that are neither comments nor tests."""
    text = re.split(r"^#\[cfg\(test\)\]\n(?=mod \w+ \{)", file.read_text(), flags=re.M)[0]
    return re.sub(r"^\s*//.*$", "", text, flags=re.M)


def sources():
    for file in sorted(SRC.glob("**/*.rs")):
        path = file.relative_to(SRC)
        part = path.parts[0].removesuffix(".rs")
        if part not in NOT_PARTS and "tests" not in path.parts and file.stem != "tests":
            yield path, part, code(file)


def names(text):
    """The first names of the `crate::` paths in a text."""
    for match in re.finditer(r"\bcrate::(\w+|\{)", text):
        if match[1] != "{":
            yield match[1]
            continue
        # `crate::{a::b, c}`: what is inside, without inner braces.
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        inside = re.sub(r"\{[^{}]*\}", "", text[match.end() : end - 1])
        yield from re.findall(r"(?:^|,)\s*(\w+)", inside)


def arrows(parts):
    """The folders that each folder uses."""
    exported = {}
    for match in re.finditer(r"^pub use (\w+)::([^;]+);", (SRC / "lib.rs").read_text(), re.M):
        exported |= dict.fromkeys(re.findall(r"\w+", match[2]), match[1])
    found = {part: set() for part in parts}
    for path, part, text in sources():
        used = {exported.get(name, name) for name in names(text)} & set(parts) - {part}
        if part in found:
            found[part] |= used
        elif used:
            sys.exit(f"{path}, beside the folders, uses {used}")
    return found


def draw(parts, used):
    below = {part: {it for it in used[part] if parts.index(it) > parts.index(part)} for part in parts}
    above = [(part, it) for part in parts for it in used[part] - below[part]]
    reached = {}
    for part in reversed(parts):
        reached[part] = below[part].union(*(reached[it] for it in below[part]))
    drawn = [(part, it) for part in parts for it in below[part] if not any(it in reached[other] for other in below[part])]
    height = {}
    for part in reversed(parts):
        height[part] = 1 + max((height[it] for it in below[part]), default=0)
    top = max(height.values())
    place = {}
    for level in range(1, top + 1):
        row = [part for part in parts if height[part] == level]
        for at, part in enumerate(row):
            place[part] = (int(720 * (2 * at + 1) / (2 * len(row))), 30 + 70 * (top - level))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {70 * top}" width="720" height="{70 * top}" role="img" '
        'style="max-width:100%;height:auto" fill="none" stroke="currentColor" font-family="sans-serif" font-size="14">',
        "<title>The folders of src; each uses those below it that its arrows lead to.</title>",
        "<style>@media (prefers-color-scheme: dark) { svg:root { color: #e6edf3 } }</style>",
        '<defs><marker id="keyqueue-uses" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="context-stroke" stroke="none"/></marker></defs>',
        '<g marker-end="url(#keyqueue-uses)">',
    ]
    for part, it in sorted(drawn):
        (x, y), (to_x, to_y) = place[part], place[it]
        lines.append(f'<path d="M{x} {y + 15}L{to_x} {to_y - 17}"/>')
    for part, it in sorted(above):
        (x, y), (to_x, to_y) = place[part], place[it]
        curve = f"M{x + 12} {y - 15}Q{max(x, to_x) + 90} {(y + to_y) // 2} {to_x + 12} {to_y + 17}"
        lines.append(f'<path d="{curve}" stroke="#d62728" stroke-dasharray="5 3"/>')
    lines.append("</g>")
    for part, (x, y) in place.items():
        lines.append(f'<rect x="{x - 45}" y="{y - 15}" width="90" height="30" rx="8" fill="#2f6db5" stroke="none"/>')
        lines.append(f'<text x="{x}" y="{y + 5}" text-anchor="middle" fill="#ffffff" stroke="none">{part}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main():
    page, write, problems = PAGE.read_text(), "--write" in sys.argv, []
    parts = [match[1] for match in ROW.finditer(page)]
    folders = {it.name for it in SRC.iterdir() if it.is_dir()} - NOT_PARTS
    if set(parts) != folders:
        sys.exit(f"the parts of internals.md are not the folders of src: {sorted(folders ^ set(parts))}")
    used = arrows(parts)

    def row(match):
        above = parts[: parts.index(match[1])]
        cells = (f"**{it}**" if it in above else it for it in sorted(used[match[1]], key=parts.index))
        return f"| `{match[1]}/` | {match[2]} | {', '.join(cells)} |"

    for file, text, wanted in [(PAGE, page, ROW.sub(row, page)), (PICTURE, PICTURE.read_text(), draw(parts, used))]:
        if write:
            file.write_text(wanted)
        elif text != wanted:
            problems.append(f"{file.relative_to(ROOT)} does not show what uses what: run .ci/jobs/pages.sh --write")

    unsafe = page.partition("# Unsafe code")[2].partition("\n# ")[0]
    listed = [SRC / it for it in re.findall(r"^\| (.*?) \|", unsafe, re.M) for it in re.findall(r"`([\w/.]+)`", it)]
    for path, _, text in sources():
        if re.search(r"\bunsafe (?!fn\()|\bunsafe\{", text) and not any(SRC / path == it or it in (SRC / path).parents for it in listed):
            problems.append(f"internals.md: {path} has unsafe code, and is not listed")
    for it in listed:
        files = [it] if it.suffix else it.glob("**/*.rs")
        if not any(file.exists() and "unsafe" in code(file) for file in files):
            problems.append(f"internals.md: {it.relative_to(SRC)} has no unsafe code")
    # Files, and the functions and types in parentheses after them.
    for name, items in re.findall(r"`(src/[\w/.]+)`(?: \(((?:`[\w:]+`(?:, )?)+)\))?", page):
        text = (ROOT / name).read_text() if (ROOT / name).is_file() else ""
        if not (ROOT / name).exists():
            problems.append(f"internals.md: there is no {name}")
        for item in re.findall(r"(\w+)`", items):
            if not re.search(rf"\b(fn|struct|enum) {item}\b", text):
                problems.append(f"internals.md: there is no {item} in {name}")
    up = sum(parts.index(it) < parts.index(part) for part in parts for it in used[part])
    print("\n".join(problems) or f"{len(parts)} folders, {sum(map(len, used.values()))} arrows, {up} of them up")
    sys.exit(bool(problems))


main()
