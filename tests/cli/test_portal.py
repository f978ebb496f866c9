"""crowdml portal verify: the same is the same, and every kind of difference is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdml.cli import portal
from crowdml.cli.app import app
from tests.support.process import Process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    started = Process(tmp_path_factory.mktemp("portal") / "server")
    started.create()
    yield started
    started.end()


def verify(server: Process, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["portal", "verify", server.address, *more])
    return done.exit_code, " ".join(done.output.split())


def test_a_server_of_this_release_is_the_same(server: Process) -> None:
    code, shown = verify(server)
    assert code == 0 and shown.startswith("same as in crowdml"), shown
    found = json.loads(CliRunner().invoke(app, ["portal", "verify", server.address, "--json", "-"]).stdout)
    assert found["verdict"] == "same" and not any(one["problem"] for one in found["files"])
    assert {"/", "/device", "/tasks/walk", "/join/walk"} == {one["page"] for one in found["pages"]}


def test_one_other_byte_is_found_in_the_file_and_in_every_page_that_loads_it(
    server: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(portal.STATIC, tmp_path / "static")
    (copy / "pages.css").write_bytes((copy / "pages.css").read_bytes() + b" ")
    monkeypatch.setattr(portal, "STATIC", copy)
    code, shown = verify(server)
    assert code == 1 and "pages.css other bytes than installed" in shown and "differs from crowdml" in shown
    assert shown.count("another hash for /static/pages.css") == 4


def test_a_file_that_is_missing_there_is_named(
    server: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(portal.STATIC, tmp_path / "static")
    (copy / "more.js").write_text("1")
    monkeypatch.setattr(portal, "STATIC", copy)
    code, shown = verify(server)
    assert code == 1 and "more.js not to be had" in shown


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ("<script>send()</script>", "a script inside the page"),
        ('<script src="/static/a.js"></script>', "another hash for /static/a.js"),
        ('<script src="/static/b.js" integrity="x"></script>', "loads /static/b.js, which this installation"),
        ('<script src="https://else.example/a.js" integrity="x"></script>', "loads https://else.example/a.js"),
        ('<link rel="stylesheet" href="/else.css">', "loads /else.css"),
        ('<p onclick="send()">', "a script in the attribute onclick"),
        ('<a href=" JavaScript:send()">', "a script in the attribute href"),
        ("<iframe src='/'></iframe>", "an element <iframe>"),
    ],
)
def test_what_a_page_should_not_have_is_found(html: str, problem: str) -> None:
    page: Any = portal._Page({"/static/a.js": "sha384-a"})
    page.feed(f"<html><body>{html}</body></html>")
    assert len(page.problems) == 1 and problem in page.problems[0]


def test_the_right_hash_is_right() -> None:
    page: Any = portal._Page({"/static/a.js": "sha384-a"})
    page.feed('<script type="module" src="/static/a.js" integrity="sha384-a"></script>')
    assert page.problems == []


def test_nobody_there_is_bad_input() -> None:
    done = CliRunner().invoke(app, ["portal", "verify", "http://127.0.0.1:1"])
    assert "does not answer" in str(done.exception)
