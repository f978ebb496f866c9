"""Pages that take several machines, or a server: each machine is a folder of its own, servers and network are real.

A block after `<!-- on: owner -->` is typed on the machine of that name. Further words after a comma: `file: NAME` is a
file there; `goes on` is a server that is left running (on any free port, so that the test disturbs nobody); `server
stopped` is typed after it was stopped. A link in a command stands for the last link that was printed.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.server.setup.serve_options import lan_address

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"https?://\S+/join/\S+#[^\s']+")
Compare = Callable[[str, str], str]


class Machines:
    """The machines of a walk, and what was printed on them."""

    def __init__(self, folder: Path, names: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, monkeypatch
        self._servers: list[subprocess.Popen[str]] = []
        self._link = ""
        for name in names:
            (folder / name).mkdir()
            shutil.copytree(ROOT / "examples", folder / name / "examples")

    def go_to(self, name: str) -> Path:
        """Sit down at a machine."""
        home = self._folder / name
        self._patch.setenv("HOME", str(home))
        self._patch.setenv("COLUMNS", "80")
        for variable in ("XDG_DATA_HOME", "CROWDML_OPERATOR_TOKEN"):
            self._patch.delenv(variable, raising=False)
        self._patch.chdir(home)
        return home

    def type(self, line: str) -> str:
        """Type a command and return what it prints."""
        program, *arguments = shlex.split(LINK.sub(lambda _: self._link, line))
        if program == "scp":
            return self._copy(*arguments)
        assert program == "crowdml", f"a walk types crowdml and scp, not {line}"
        printed = self._run(arguments)
        found = LINK.search(printed)
        self._link = found[0] if found else self._link
        return printed

    def start(self, line: str) -> str:
        """Start a server and return what it prints until it serves."""
        _, *arguments = shlex.split(line)
        command = [sys.executable, "-m", "crowdml", *arguments, "--port", "0"]
        self._servers.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ))
        said, stream = "", self._servers[-1].stderr
        assert stream is not None
        for text in stream:
            said += text
            if text.startswith("serving"):
                break
        return said

    def stop(self) -> None:
        """Stop all servers, as Ctrl-C does."""
        while self._servers:
            server = self._servers.pop()
            server.send_signal(signal.SIGTERM)
            assert server.stderr is not None
            rest = server.stderr.read()
            server.stderr.close()
            assert server.wait(timeout=30) == 0, rest
            assert "Traceback" not in rest, rest

    def _copy(self, source: str, target: str) -> str:
        machine, _, path = source.partition(":")
        shutil.copy(self._folder / machine.partition("@")[0] / path, target)
        return ""

    def _run(self, arguments: list[str]) -> str:
        from crowdml.cli import main

        printed = io.StringIO()
        self._patch.setattr(sys, "argv", ["crowdml", *arguments])
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), contextlib.suppress(SystemExit):
            main()
        return printed.getvalue()


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walk: Any) -> Iterator[Machines]:
    if "--lan" in walk.text:
        try:
            lan_address()
        except BadInput:
            pytest.skip("this machine is in no network")
    made = Machines(tmp_path, walk.machines, monkeypatch)
    yield made
    made.stop()


def test_walk(walk: Any, machines: Machines, compare: Compare) -> None:
    typed = 0
    for block in walk.blocks():
        if not block.marker.startswith("on: "):
            continue
        name, _, what = block.marker.removeprefix("on: ").partition(", ")
        home = machines.go_to(name)
        if what.startswith("file: "):
            (home / what.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        elif what == "server stopped":
            machines.stop()
        elif block.language == "python":
            (home / "block.py").write_text(block.text, encoding="utf-8")
            runpy.run_path(str(home / "block.py"))
        for line, expected in block.commands() if block.language == "console" else ():
            printed = machines.start(line) if what == "goes on" else machines.type(line)
            problem = compare(expected, printed)
            assert not problem, f"{walk.name}, on {name}: $ {line}\n{problem}"
            typed += 1
    assert typed > 5, f"{walk.name} types hardly anything"
    machines.stop()


def test_walks_can_follow_each_other_on_one_server(pages: list[Any]) -> None:
    """A server never uses a task's name twice, so a newcomer who goes on to the next page would be refused."""
    files = [block.text for page in pages if page.machines for block in page.blocks("toml") if "file: " in block.marker]
    names = [tomllib.loads(text)["name"] for text in files]
    assert len(names) > 3 and sorted(set(names)) == sorted(names)


def test_a_walk_has_at_least_two_machines(pages: list[Any]) -> None:
    walks = {page.name: page.machines for page in pages if page.machines}
    assert walks["docs/tutorials/two-machines.md"] == {"operator", "owner"}
