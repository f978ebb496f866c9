"""What a documentation site is made of: pages, where each stands in the navigation, and links between them.

`docs/index.md` is the navigation: its headings are sections, and the pages in a section are those that its list links
to, in that order. What stands before the first of these headings is a welcome. A file outside `docs` that a page links
to becomes a page too, so that a reader of the site misses nothing.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from docs.site.notebooks import page_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"

LINK = re.compile(r"(?<!\\)(?<=\]\()([^)\s]+)(?=\))")
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
CONSOLE = re.compile(r"```console\n(.*)```", re.S)
HEADING = re.compile(r"^(#{2,3}) (.+)$")
PICTURES = (".png", ".svg")
LANGUAGES = {".toml": "toml", ".py": "python", ".yaml": "yaml", ".service": "ini", ".json": "json"}

Nav = list[dict[str, "str | Nav"]]
"""Sections and pages as a site generator takes them: a title, and a page or what stands under the title."""


def links(text: str) -> Iterator[str]:
    """Yield what a page links to inside the project, code blocks left out."""
    for target in LINK.findall(FENCED.sub("", text)):
        if not target.startswith(("https:", "http:", "mailto:")):
            yield target


def staged(path: Path) -> str:
    """Return where a file of the project stands in the site's source."""
    if path.is_relative_to(DOCS):
        inside = path.relative_to(DOCS)
        return (inside.with_suffix(".md") if path.suffix == ".ipynb" else inside).as_posix()
    outside = path.relative_to(ROOT)
    if path.suffix == ".md":
        return f"project/{outside.stem.lower().replace('_', '-')}.md"
    return f"files/{outside.as_posix()}.md"


def sources() -> dict[str, Path]:
    """Return all pages, by where they stand: those of `docs`, notebooks, and what these link to, and so on."""
    found: dict[str, Path] = {}
    waiting = [*sorted(DOCS.rglob("*.md")), *sorted(DOCS.rglob("*.ipynb"))]
    while waiting:
        path = waiting.pop(0)
        if path.suffix in PICTURES or staged(path) in found:
            continue
        found[staged(path)] = path
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            named = (target.partition("#")[0] for target in links(text))
            waiting += [(path.parent / name).resolve() for name in named if name]
    return found


def write_sources(folder: Path) -> dict[str, Path]:
    """Lay out all pages and pictures for a site generator; return the pages."""
    found = sources()
    for name, path in found.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(render(name, path), encoding="utf-8")
    for path in DOCS.rglob("*"):
        if path.suffix in PICTURES:
            target = folder / path.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return found


def render(name: str, path: Path) -> str:
    """Return a page's Markdown, with links to where things stand in the site."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        parts = FENCED.split(text)
        parts[::2] = [LINK.sub(lambda found: _relinked(found[1], name, path), part) for part in parts[::2]]
        parts[1::2] = [console(block[1]) if (block := CONSOLE.fullmatch(part)) else part for part in parts[1::2]]
        return "".join(parts)
    if path.suffix == ".ipynb":
        return page_of(path)
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.name}\n\n`{path.relative_to(ROOT).as_posix()}`\n\n```{language}\n{text.rstrip()}\n```\n"


def console(text: str) -> str:
    """Return a console block with prompts and answers marked, which a copy of it leaves out.

    A highlighter would take an answer such as `http://host/#code` for another prompt.
    """
    shown, typed = "", False
    for line in text.splitlines():
        prompt, typed = ("$ ", True) if line.startswith("$ ") else ("", typed)
        words = html.escape(line.removeprefix(prompt), quote=False)
        # The ends of lines belong to what they end: a copy has one line for each command.
        shown += f'<span class="gp">{prompt}</span>{words}\n' if typed else f'<span class="go">{words}\n</span>'
        typed = typed and line.endswith("\\")
    return f'<div class="highlight"><pre><span></span><code>{shown}</code></pre></div>'


def _relinked(target: str, name: str, path: Path) -> str:
    if target.startswith(("https:", "http:", "mailto:", "#")):
        return target
    file, hash_sign, anchor = target.partition("#")
    there = (path.parent / file).resolve()
    place = there.relative_to(DOCS).as_posix() if there.suffix in PICTURES else staged(there)
    return os.path.relpath(place, Path(name).parent) + hash_sign + anchor


def title(path: Path) -> str:
    """Return what a page calls itself."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "".join(json.loads(text)["cells"][0]["source"])
    elif path.suffix != ".md":
        return path.name
    return re.search(r"^# (.+)$", FENCED.sub("", text), re.M)[1]  # type: ignore[index]


def navigation() -> Nav:
    """Read the navigation off the index. What pages link to outside `docs`, and no list names, stands under Files."""
    found = sources()
    nav: Nav = [{"Home": "index.md"}]
    listed = {"index.md"}
    section: Nav = []
    group: Nav = []
    _, _, lists = FENCED.sub("", INDEX.read_text(encoding="utf-8")).partition("\n## ")
    for line in f"## {lists}".splitlines():
        if heading := HEADING.match(line):
            level, name = heading.groups()
            group = []
            if level == "##":
                section = group
                nav.append({name: group})
            else:
                section.append({name: group})
        for target in links(line):
            place = staged((DOCS / target.partition("#")[0]).resolve())
            if place in found and place not in listed:
                listed.add(place)
                group.append({title(found[place]): place})
    files: Nav = [{path.name: name} for name, path in sorted(found.items()) if name.startswith("files/")]
    if files:
        nav.append({"Files": files})
    return [entry for entry in nav if all(entry.values())]


def unlisted() -> set[str]:
    """Return pages that the index does not name."""
    return set(sources()) - set(_places(navigation()))


def _places(nav: Nav) -> Iterator[str]:
    for entry in nav:
        for below in entry.values():
            if isinstance(below, str):
                yield below
            else:
                yield from _places(below)
