"""crowdml portal: whether a server hands out the pages and scripts of this very release, and no others.

In a browser the operator serves the code that protects owners from the operator. Nobody can take that trust away
altogether; but whoever has crowdml installed can compare, and a server that hands out something else is found out.
"""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import command_group

if TYPE_CHECKING:
    from crowdml.cli.operator import Operator

STATIC = Path(__file__).parents[1] / "server" / "pages" / "static"
PAGES = ("/", "/device")
LARGEST = 4 << 20
"""Bytes of a page or a file at most."""

app = command_group("Check what a server hands out to browsers.")


@app.callback()
def _commands() -> None:
    """Check what a server hands out to browsers."""


@app.command()
def verify(
    url: Annotated[str, typer.Argument(help="Address of the server, such as https://crowd.example.")],
    ca: Annotated[Path | None, typer.Option(help="Certificate authority of the server, PEM.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the findings here ('-': standard output).")] = None,
) -> None:
    """Compare the pages and scripts of a server with those of this installation.

    Every script and style is fetched and compared byte by byte. Every page is looked through: it may load those files
    alone, each with its right hash, have no script of its own, and must tell browsers to allow no other. Ends with 0
    where all is the same, and with 1 where anything differs. It says what the server answered now, to you: it may
    answer differently to others.
    """
    from crowdml.cli.operator import Operator

    output.check_paths(json, None)
    found = compare(Operator(url, None, ca, public=True))
    if json != Path("-"):
        _print(found)
    output.write_json(found, json)
    raise typer.Exit(0 if found["verdict"] == "same" else 1)


def compare(server: Operator) -> dict[str, Any]:
    """Fetch everything and say what differs."""
    from crowdml.version import __version__

    expected = {path.name: path.read_bytes() for path in sorted(STATIC.iterdir()) if path.is_file()}
    files = {name: _file_problem(server, name, content) for name, content in expected.items()}
    tasks = [task["task"] for task in server.ask("GET", "/v1/tasks")["tasks"]]
    paths = [*PAGES, *(f"/{kind}/{quote(task)}" for task in tasks for kind in ("tasks", "join"))]
    pages = {path: _page_problems(server, path, expected) for path in paths}
    differs = any(files.values()) or any(pages.values())
    return {
        "url": server.address,
        "installed": __version__,
        "verdict": "differs" if differs else "same",
        "files": [{"file": name, "problem": problem} for name, problem in files.items()],
        "pages": [{"page": path, "problems": problems} for path, problems in pages.items()],
    }


def _file_problem(server: Operator, name: str, expected: bytes) -> str:
    """Say how a file differs; empty where it does not."""
    from crowdml.cli.operator import ServerRefused

    try:
        content = server.fetch("GET", f"/static/{quote(name)}", largest=LARGEST).content
    except ServerRefused as error:
        return f"not to be had: {error}"
    if content == expected:
        return ""
    return f"other bytes than installed: {len(content)} with SHA-384 {_sha384(content)[:23]}…, not {len(expected)}"


def _page_problems(server: Operator, path: str, expected: dict[str, bytes]) -> list[str]:
    """List what a page has that it should not have."""
    from crowdml.cli.operator import ServerRefused

    try:
        answer = server.fetch("GET", path, largest=LARGEST)
    except ServerRefused as error:
        return [f"not to be had: {error}"]
    read = _Page({f"/static/{name}": _sha384(content) for name, content in expected.items()})
    read.feed(answer.text)
    rules = {
        words[0]: words[1:]
        for words in (part.split() for part in answer.headers.get("content-security-policy", "").split(";"))
        if words
    }
    if rules.get("script-src") != ["'self'"] or rules.get("default-src") != ["'none'"]:
        read.problems.append("its Content-Security-Policy lets browsers run other scripts than those of the server")
    if any(not source.startswith("'") for source in rules.get("connect-src", [])):
        read.problems.append("its Content-Security-Policy lets scripts send to other servers")
    return read.problems


class _Page(HTMLParser):
    """Looks at every script, style and event of a page.

    Args:
        known: Hashes of the files that a page may load, by their addresses.
    """

    def __init__(self, known: dict[str, str]) -> None:
        super().__init__()
        self._known = known
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        given = {name: value or "" for name, value in attrs}
        if tag == "script" and "src" not in given:
            self.problems.append("a script inside the page")
        elif tag == "script":
            self._compare(given["src"], given)
        elif tag == "link" and "stylesheet" in given.get("rel", ""):
            self._compare(given.get("href", ""), given)
        elif tag in ("iframe", "object", "embed", "base"):
            self.problems.append(f"an element <{tag}>")
        for name in given:
            if name.startswith("on") or given[name].strip().lower().startswith("javascript:"):
                self.problems.append(f"a script in the attribute {name} of <{tag}>")

    def _compare(self, address: str, given: dict[str, str]) -> None:
        expected = self._known.get(address)
        if expected is None:
            self.problems.append(f"loads {address or 'nothing by name'}, which this installation does not have")
        elif given.get("integrity") != expected:
            self.problems.append(f"names another hash for {address} than that of the installed file")


def _sha384(content: bytes) -> str:
    return "sha384-" + base64.b64encode(hashlib.sha384(content).digest()).decode()


def _print(found: dict[str, Any]) -> None:
    bad = [(one["file"], one["problem"]) for one in found["files"] if one["problem"]]
    bad += [(one["page"], problem) for one in found["pages"] for problem in one["problems"]]
    for where, problem in bad:
        output.show(output.strong(where, f"  {problem}"))
    counts = f"{len(found['files'])} files and {len(found['pages'])} pages of {found['url']}"
    if bad:
        output.show(output.strong("differs", f" from crowdml {found['installed']} as installed here: {counts}"))
        output.show("the server may run another release, or hand out what it should not; ask its operator which")
    else:
        output.show(output.strong("same", f" as in crowdml {found['installed']} as installed here: {counts}"))
        output.show("this is what it answered now, to you", style="dim")
