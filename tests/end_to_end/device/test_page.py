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
        page.wait_for_selector("#curve path.band", state="attached")
        page.wait_for_function(
            "words => document.getElementById('window').textContent.includes(words)",
            arg=f"last {before + 3} check-ins",
        )
        assert "95 % band" in page.locator("#window").inner_text()
        require_readable_axes(page, before + 3)
        assert page.locator("#state").inner_text() == "open"
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "nothing sticks out sideways"
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert not problems
        context.close()
    assert grounds["light"] != grounds["dark"]


def require_readable_axes(page: Any, versions: int) -> None:
    """Ticks of versions are whole and up to the last; no two labels of an axis touch; letters are not tiny."""
    page.wait_for_function(
        "words => document.getElementById('curve-text').textContent.includes(words)", arg=f"to {versions})"
    )
    across = page.locator("#curve text.tick.x").all_text_contents()
    assert [int(tick) for tick in across] == sorted({int(tick) for tick in across}), across
    assert len(across) >= 2 and int(across[0]) == 0 and int(across[-1]) <= versions
    assert page.locator("#curve text.tick.y").all_text_contents() == ["0", "0.25", "0.5", "0.75", "1"]
    assert page.locator("#curve text.name").text_content() == "version"
    boxes = page.evaluate(
        "[...document.querySelectorAll('#curve text')].map(own => {"
        " const box = own.getBoundingClientRect(); return [box.left, box.right, box.top, box.bottom]; })"
    )
    for number, (left, right, top, bottom) in enumerate(boxes):
        assert bottom - top >= 10, "letters can be read"
        for other in boxes[number + 1 :]:
            assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top, boxes


def test_a_curve_of_few_versions_has_whole_ticks(
    server: Any, crowdml: Run, rows: Path, tmp_path: Path, browser: Any
) -> None:
    """Also where no counts are sent, and check-ins are drawn instead of an error."""
    server.open(("statistics-epsilon = 1.0\n", ""))
    home = ("--home", str(tmp_path / "device"))
    assert crowdml("device", "join", server.invite(), *home, "--yes").returncode == 0
    assert crowdml("device", "run", "--rows", str(rows), *home, "--releases", "3").returncode == 0
    page = browser.new_page(viewport=PHONE)
    page.goto(f"{server.address}/tasks/{server.task}")
    page.wait_for_selector("#curve path.line", state="attached")
    for axis in ("x", "y"):
        assert page.locator(f"#curve text.tick.{axis}").all_text_contents() == ["0", "1", "2", "3"]
    assert "sends no counts" in page.locator("#curve-text").inner_text()
    page.close()


def test_a_stopped_task_is_shown_as_ended_while_one_looks_on(server: Any, browser: Any) -> None:
    server.open()
    page = browser.new_page(viewport=PHONE)
    page.goto(f"{server.address}/tasks/{server.task}")
    server.ask(f"/v1/tasks/{server.task}", {"state": "stopped"}, "PATCH")
    page.wait_for_function("() => document.getElementById('standing').textContent.includes('This task has ended')")
    assert "the operator stopped it" in page.locator("#standing").inner_text()
    page.close()


def test_an_invite_opened_in_a_browser_says_what_to_do(server: Any, browser: Any) -> None:
    server.open()
    page = browser.new_page(viewport=PHONE)
    page.goto(server.invite())
    # The browser itself can be the device; what a computer would do is folded away below.
    page.locator("#about > summary").click()
    assert "crowdml device join" in page.locator("main").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.close()
