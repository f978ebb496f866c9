"""The portal in a real browser: readable by everybody, at every width, in light and dark, without anybody else."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import crowdml.server.pages
from tests.portal.conftest import EVIL, LABELS, ODD
from tests.support.browser import WAIT_MS

pytestmark = pytest.mark.browser

PAGES = ("/", "/tasks/walk", "/tasks/odd", "/tasks/rounds", "/tasks/ended", "/join/walk", "/join/ended", "/device")
MORE = ("/tasks/waiting", "/join/waiting", "/nowhere")
SIX = ("learnt", "from", "leaves", "promised", "part", "well")
LARGEST_PAGE = 60_000
LARGEST_SCRIPTS = 36_000


@contextmanager
def opened(browser: Any, portal: Any, path: str, width: int = 1440, height: int = 900, **more: Any) -> Iterator[Any]:
    """Open a page in a fresh profile; whatever is wrong with it is in `page.problems`."""
    context = browser.new_context(viewport={"width": width, "height": height}, **more)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.problems, page.finished, page.asked = [], [], []
    page.on("console", lambda said: page.problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: (page.problems.append("a dialog opened"), dialog.dismiss()))
    page.on("request", lambda request: page.asked.append(request.url))
    # Only noted here: what is asked of a request while its page closes fails.
    page.on("requestfinished", lambda request: page.finished.append(request))
    page.goto(portal.address + path)
    yield page
    context.close()


def require_well(page: Any, portal: Any, path: str, width: int) -> None:
    """No violation, no error, nobody else asked, nothing sticks out, and not much to load."""
    found = Axe().run(page)
    assert found.violations_count == 0, (path, width, found.generate_report())
    expected = [problem for problem in page.problems if not (path == "/nowhere" and "404" in problem)]
    assert expected == [], (path, width)
    foreign = [url for url in page.asked if not url.startswith((portal.address, "data:"))]
    assert foreign == [], path
    assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
    page.wait_for_load_state("load")
    loaded = [request for request in page.finished if not request.url.endswith("/events")]
    sizes = [request.sizes()["responseBodySize"] for request in loaded]
    assert sizes and sum(sizes) <= LARGEST_PAGE, (path, sizes)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_well_on_a_phone_in_the_dark_and_on_a_desk_by_day(browser: Any, portal: Any, path: str) -> None:
    for width, scheme in ((360, "dark"), (1440, "light")):
        with opened(browser, portal, path, width, color_scheme=scheme) as page:
            require_well(page, portal, path, width)


@pytest.mark.live
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_every_page_is_well_at_every_width_in_both_themes(browser: Any, portal: Any, width: int, scheme: str) -> None:
    for path in (*PAGES, *MORE):
        with opened(browser, portal, path, width, color_scheme=scheme) as page:
            require_well(page, portal, path, width)


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_a_newcomer_finds_six_answers_on_two_screens(browser: Any, portal: Any, width: int, height: int) -> None:
    with opened(browser, portal, "/tasks/walk", width, height) as page:
        said = {}
        for name in SIX:
            part = page.locator(f'[data-answer="{name}"]')
            box = part.bounding_box()
            assert box["y"] + box["height"] <= 2 * height, (name, box)
            said[name] = " ".join(part.inner_text().split())
        assert "Tell walking from standing" in said["learnt"] and "standing, walking" in said["learnt"]
        assert "steps (per second)" in said["from"] and "stay on owners’ devices" in said["from"]
        assert "noise is added on your device" in said["leaves"]
        shown = portal.app._coordinator.tasks["walk"].promise.promised.dots.right
        assert 50 < shown < 100 and f"at most {shown} times in 100" in said["promised"]
        assert "1 device" in said["part"] and "25 check-ins" in said["part"]
        recent = portal.show("walk")["recent_error"]
        assert f"{min(1, max(0, recent['estimate'])):.2f} error" in said["well"] and "95 % band" in said["well"]


def test_from_the_first_page_to_a_live_curve_in_one_click(browser: Any, portal: Any) -> None:
    with opened(browser, portal, "/") as page:
        page.get_by_role("link", name="Learn in rounds").click()
        page.wait_for_selector("#curve path.line", state="attached")
        before = int(page.locator("#check_ins").inner_text())
        portal.check_in("rounds", 1)
        page.wait_for_function(
            "count => document.getElementById('check_ins').textContent == count", arg=str(before + 1)
        )
        portal.measure("rounds")
        words = f"at version {portal.show('rounds')['version']}"
        page.wait_for_function("words => document.getElementById('curve-text').textContent.includes(words)", arg=words)
        assert "On the operator’s 50 public rows" in page.locator("#curve-text").inner_text()
        assert page.problems == []


def test_words_beside_live_numbers_go_with_them(browser: Any, portal: Any) -> None:
    portal.create("name=begins", file=ODD)
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{portal.address}/tasks/begins")
    well, part = page.locator("[data-answer=well]"), page.locator("[data-answer=part]")
    assert "no error is known yet" in well.inner_text() and "0 devices" in part.inner_text()
    portal.check_in("begins", 25)
    # The page may hear of some of the 25 first: these are the words once it has heard of all.
    said = "() => document.querySelector('[data-answer=from]').innerText.includes('100 rows looked at')"
    page.wait_for_function(said)
    expect(well).to_contain_text(re.compile(r"0\.\d\d error"))
    expect(part).to_contain_text("1 device,")
    page.close()


def test_everything_can_be_read_without_javascript(browser: Any, portal: Any) -> None:
    with opened(browser, portal, "/tasks/walk", java_script_enabled=False) as page:
        assert page.locator("#curve path.line").count() == 1 and page.locator("#curve path.band").count() == 1
        for chart in ("curve", "targets", "days", "staleness"):
            assert page.locator(f"svg#{chart}").get_attribute("aria-label")
            page.locator(f"#{chart}-table summary").click()
            assert page.locator(f"#{chart}-table tbody tr").first.inner_text()
        assert [page.locator(f'[data-answer="{name}"] p').first.inner_text() != "" for name in SIX] == [True] * 6
        assert not [url for url in page.asked if url.endswith(".js")]


@pytest.mark.parametrize("path", ["/", "/tasks/odd", "/join/odd"])
def test_scripts_in_names_and_labels_are_words(browser: Any, portal: Any, path: str) -> None:
    with opened(browser, portal, path) as page:
        words = page.locator("main").text_content()
        assert EVIL in words and LABELS[1] in words
        assert page.locator("img[src=x]").count() == 0
        scripts = page.evaluate("[...document.scripts].map(script => script.src)")
        assert all(source.startswith(f"{portal.address}/static/") for source in scripts)
        assert page.problems == []


def test_an_invite_puts_its_link_into_the_command_and_tells_the_server_nothing(browser: Any, portal: Any) -> None:
    (link,) = portal.invites(1, "walk")
    _, _, fragment = link.to_url().partition("#")
    with opened(browser, portal, f"/join/walk#{fragment}") as page:
        page.wait_for_function("code => document.getElementById('link').textContent.includes(code)", arg=link.code)
        page.get_by_text("times in 100").locator("visible=true").first.wait_for()
        assert not [url for url in page.asked if link.code in url.partition("#")[0]]
        assert page.locator("#device-app").get_attribute("data-task") == "walk"
        expect(page.locator("main > #crowd")).to_have_text("1 device takes part so far.")


def test_who_is_invited_reads_that_counts_and_updates_share_one_budget(browser: Any, portal: Any) -> None:
    with opened(browser, portal, "/join/walk", java_script_enabled=False) as page:
        said = page.locator("#one-budget").inner_text()
        assert re.search(r"updates, \d+\.\d% for counts of errors and labels\. Nothing is spent beside it\.$", said), (
            said
        )
        assert said.startswith("One budget pays for all of this: ")
    with opened(browser, portal, "/join/odd", java_script_enabled=False) as page:
        assert page.locator("#one-budget").count() == 0, "where nothing is promised there is no budget"


def test_a_keyboard_reaches_everything_and_may_skip(browser: Any, portal: Any) -> None:
    with opened(browser, portal, "/tasks/walk") as page:
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_attribute("href", "/")


def test_the_scripts_of_a_page_are_small(browser: Any, portal: Any) -> None:
    for path in ("/", "/tasks/walk", "/join/walk", "/device"):
        with opened(browser, portal, path) as page:
            files = {Path(url).name for url in page.evaluate("[...document.scripts].map(script => script.src)")}
        folder = Path(crowdml.server.pages.__file__).parent / "static"
        assert sum(len(gzip.compress((folder / name).read_bytes())) for name in files) <= LARGEST_SCRIPTS, path
