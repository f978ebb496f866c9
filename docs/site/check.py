"""Go through a built site as a browser would: links, anchors, pictures, scripts and styles must be in the site."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
"""What a browser fetches by itself, and the attribute that says from where."""

SHOWN_ONLY = ("canonical", "alternate", "prev", "next")
"""Relations of `<link>` that fetch nothing."""

STYLE_FETCH = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])(?!data:)([^\"')\s]+)")


@dataclasses.dataclass
class Document:
    """What an HTML file refers to, and what in it can be referred to."""

    links: list[str] = dataclasses.field(default_factory=list)
    fetched: list[str] = dataclasses.field(default_factory=list)
    anchors: set[str] = dataclasses.field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.document.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.document.links.append(given["href"])
        if tag == "link" and "href" in given and given.get("rel") not in SHOWN_ONLY:
            self.document.fetched.append(given["href"])
        if given.get(FETCHED.get(tag, "")):
            self.document.fetched.append(given[FETCHED[tag]])


def read(text: str) -> Document:
    """Read one HTML file."""
    document = Document()
    _Reader(document).feed(text)
    return document


def problems(folder: Path) -> list[str]:
    """Return what is wrong with a built site, a sentence each."""
    root = folder.resolve()
    documents = {path.resolve(): read(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    found = []
    for path, document in documents.items():
        page = path.relative_to(root).as_posix()
        for target in document.fetched:
            if target.startswith("data:"):
                continue  # it stands in the page itself
            if _outside(target):
                found.append(f"{page} fetches {target} from elsewhere")
            elif not _file(root, path, target).is_file():
                found.append(f"{page} fetches {target}, which is not in the site")
        for target in document.links:
            if _outside(target):
                continue
            there = _file(root, path, target)
            if there not in documents and not there.is_file():
                found.append(f"{page} links to {target}, which is not in the site")
            elif (anchor := unquote(urlsplit(target).fragment)) and there in documents:
                if anchor not in documents[there].anchors:
                    found.append(f"{page} links to {target}: {there.name} has no such heading")
    for path in folder.rglob("*.css"):
        for target in STYLE_FETCH.findall(path.read_text(encoding="utf-8")):
            if _outside(target):
                found.append(f"{path.name} fetches {target} from elsewhere")
    return found


def _outside(target: str) -> bool:
    return bool(urlsplit(target).scheme or target.startswith("//")) and not target.startswith("data:")


def _file(root: Path, page: Path, target: str) -> Path:
    """Return the file that a link leads to. One that begins with a slash begins at the site's root."""
    where = unquote(urlsplit(target).path)
    if not where:
        return page
    there = (root / where.lstrip("/") if where.startswith("/") else page.parent / where).resolve()
    return there / "index.html" if there.is_dir() else there
