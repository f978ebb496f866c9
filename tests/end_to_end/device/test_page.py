"""The page of a task in a real browser, while a device checks in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
PHONE = {"width": 360, "height": 740}
pytestmark = pytest.mark.browser


def test_the_page_follows_check_ins_on_a_phone_in_light_and_dark(
    server: Any, crowdml: Run, rows: Path, tmp_path: Path, browser: Any
) -> None:
    server.open()
    home = ("--home", str(tmp_path / "device"))
    assert crowdml("device", "join", server.invite(), *home, "--yes").returncode == 0
    grounds = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport=PHONE, color_scheme=scheme)
        page = context.new_page()
        problems: list[str] = []
        page.on("console", lambda said, to=problems: to.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error, to=problems: to.append(str(error)))
        page.goto(f"{server.address}/tasks/{server.task}")
        before = int(page.locator("#check_ins").inner_text())
        assert crowdml("device", "run", "--rows", str(rows), *home, "--releases", "3").returncode == 0
        # The numbers change without a reload, and the curve is drawn.
        page.wait_for_function(
            "count => document.getElementById('check_ins').textContent == count", arg=str(before + 3)
        )
        page.wait_for_selector("#curve path.line", state="attached")
        assert page.locator("#state").inner_text() == "open"
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "nothing sticks out sideways"
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert not problems
        context.close()
    assert grounds["light"] != grounds["dark"]


def test_an_invite_opened_in_a_browser_says_what_to_do(server: Any, browser: Any) -> None:
    server.open()
    page = browser.new_page(viewport=PHONE)
    page.goto(server.invite())
    assert "crowdml device join" in page.locator("main").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.close()
