"""The operator's pages in a real browser: a whole task without a command, every wrong field, and attacks by others."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from safetensors.numpy import load

from crowdml.server.pages.operator.task_fields import fields
from tests.server.pages.operator.test_new_task import GOOD, WRONG
from tests.support.application import Makes
from tests.support.browser import WAIT_MS
from tests.support.on_socket import OnSocket

pytestmark = pytest.mark.browser

PAGES = ("/operator", "/operator/new-task", "/operator/new-task/file", "/operator/log", "/operator/server")
OF_TASK = ("", "/devices", "/state/stopped", "/state/paused")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with a task that has a few devices."""
    with contextlib.closing(Makes(tmp_path_factory.mktemp("operated"))) as make:
        made: Any = make(kind=OnSocket)
        made.create()
        made.members = [made.device() for _ in range(2)]
        for device in made.members:
            device.check_in()
        yield made


@contextlib.contextmanager
def signed_in(browser: Any, server: Any, width: int = 1440, **more: Any) -> Iterator[Any]:
    """Open the operator's first page in a fresh profile; whatever the browser complains about is in `page.problems`."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **more)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.problems, page.asked = [], []
    page.on("console", lambda said: page.problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: (page.problems.append("a dialog opened"), dialog.dismiss()))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(f"{server.address}/operator")
    page.fill("#token", server.token)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Your tasks")
    yield page
    context.close()


def require_well(page: Any, server: Any, refused: str = "no status") -> None:
    """No violation, no complaint but about a status that was asked for, nobody else asked, nothing sticks out."""
    found = Axe().run(page)
    assert found.violations_count == 0, (page.url, found.generate_report())
    assert [problem for problem in page.problems if refused not in problem] == [], page.url
    assert all(url.startswith(server.address) for url in page.asked), page.url
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), page.url


def fill(page: Any, key: str, value: str) -> None:
    """Type into a field, or choose; what is no choice is put there as somebody would who sends it by hand."""
    at = page.locator(f'[id="{key}"]')
    if at.evaluate("field => field.tagName") != "SELECT":
        at.fill(value)
        return
    at.evaluate(
        "(field, value) => [...field.options].some(o => o.value == value) || field.add(new Option(value, value))", value
    )
    at.select_option(value)


def test_a_task_from_its_first_word_to_its_model_without_a_command(browser: Any, server: Any) -> None:
    # Without JavaScript, on a phone: what works here works everywhere.
    with signed_in(browser, server, 390, java_script_enabled=False, accept_downloads=True) as page:
        page.get_by_role("link", name="New task").first.click()
        for key in ("name", "objective", "data.columns", "data.labels"):
            fill(page, key, GOOD[key])
        fill(page, "privacy.epsilon", "lots")
        page.get_by_role("button", name="See what owners are told").click()
        expect(page.locator('[id="privacy.epsilon-error"]')).to_contain_text("should be a valid number, not 'lots'")
        expect(page.locator('[id="privacy.epsilon"]')).to_be_focused()
        assert page.locator('[id="data.labels"]').input_value() == GOOD["data.labels"]
        fill(page, "privacy.epsilon", "8")
        page.get_by_role("button", name="See what owners are told").click()
        expect(page.locator("main")).to_contain_text("no method is right more than")
        page.get_by_role("button", name="Make it a draft").click()
        expect(page).to_have_url(f"{server.address}/operator/tasks/steps")
        assert server.show("steps")["state"] == "draft"
        for link, state in (("Open", "open"), ("Pause", "paused"), ("Resume", "open")):
            page.locator("main").get_by_role("link", name=link, exact=True).click()
            page.get_by_role("button", name=link, exact=True).click()
            expect(page.locator("#state")).to_have_text(state)
            assert server.show("steps")["state"] == state
        page.fill("#count", "2")
        page.get_by_role("button", name="Make invites").click()
        expect(page.locator("svg.qr")).to_have_count(2)
        page.get_by_role("link", name="Done").click()
        page.get_by_role("link", name="Watch it live").click()
        expect(page).to_have_url(f"{server.address}/tasks/steps")
        expect(page.locator("main")).to_contain_text("Tell walking from standing")
        page.goto(f"{server.address}/operator/tasks/steps")
        with page.expect_download() as begun:
            page.get_by_role("link", name="Safetensors").click()
        with open(begun.value.path(), "rb") as file:
            assert load(file.read())
        page.get_by_role("link", name="Stop for good").click()
        page.get_by_role("button", name="Stop for good").click()
        expect(page.locator("#state")).to_have_text("stopped")
        assert server.show("steps")["state"] == "stopped"
        expect(page.locator("table.log")).to_contain_text("operator, by portal")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#token")).to_be_visible()  # or the next address would overtake the form
        page.goto(f"{server.address}/operator/tasks/steps")
        assert page.locator("#token").count() == 1
        assert [problem for problem in page.problems if "422" not in problem] == []


@pytest.mark.parametrize("path", [*PAGES[:2], "/operator/tasks/walk"])
def test_pages_are_well_on_a_phone_in_the_dark(browser: Any, server: Any, path: str) -> None:
    with signed_in(browser, server, 360, color_scheme="dark") as page:
        page.goto(server.address + path)
        require_well(page, server)


@pytest.mark.live
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_every_page_is_well_at_every_width_in_both_themes(browser: Any, server: Any, width: int, scheme: str) -> None:
    revoke = f"/operator/tasks/walk/devices/{server.members[0].id}/revoke"
    with signed_in(browser, server, width, color_scheme=scheme) as page:
        for path in (*PAGES, *(f"/operator/tasks/walk{rest}" for rest in OF_TASK), revoke):
            page.goto(server.address + path)
            require_well(page, server)
        page.goto(f"{server.address}/operator/tasks/walk")
        page.fill("#count", "3")
        page.get_by_role("button", name="Make invites").click()
        expect(page.locator("svg.qr")).to_have_count(3)
        require_well(page, server)
        page.goto(f"{server.address}/operator/new-task")
        for key in ("data.columns", "data.labels"):
            fill(page, key, GOOD[key])
        fill(page, "name", "preview-only")
        page.locator("button[value=check]").click()
        expect(page.locator("h1")).to_contain_text("would be told")
        require_well(page, server)
        page.locator("button[value=edit]").click()
        fill(page, "privacy.epsilon", "lots")
        page.locator("button[value=check]").click()
        expect(page.locator("p.error")).to_have_count(1)
        require_well(page, server, refused="422")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#token")).to_be_visible()
        require_well(page, server, refused="422")


@pytest.mark.live
def test_every_wrong_field_is_told_at_the_field_and_nothing_typed_is_lost(browser: Any, server: Any) -> None:
    with signed_in(browser, server, java_script_enabled=False) as page:
        for key, (base, wrong) in WRONG.items():
            if wrong is None:
                continue
            page.goto(f"{server.address}/operator/new-task")
            page.locator("details.card summary").click()
            typed = base | {key: wrong}
            for name, value in typed.items():
                fill(page, name, value)
            page.locator("button[value=check]").click()
            expect(page.locator("p.error"), key).to_have_count(1)
            expect(page.locator(f'[id="{key}"]')).to_be_focused()
            described = page.locator(f'[id="{key}"]').get_attribute("aria-describedby")
            assert f"{key}-error" in described.split() and page.locator(f'[id="{key}-error"]').inner_text()
            for field in fields():
                if not (field.options and typed[field.key] not in dict(field.options)):
                    assert page.locator(f'[id="{field.key}"]').input_value() == typed[field.key], (key, field.key)


@pytest.mark.live
def test_a_keyboard_is_enough(browser: Any, server: Any) -> None:
    with signed_in(browser, server) as page:
        page.goto(f"{server.address}/operator/tasks/walk/state/paused")
        reached = []
        for _ in range(14):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.textContent.trim()"))
            if reached[-1] == "Pause":
                break
        page.keyboard.press("Enter")
        page.wait_for_selector("#state.paused")
        assert server.show()["state"] == "paused", reached
        server.move("open")


@contextlib.contextmanager
def evil_site(page: str) -> Iterator[str]:
    """Serve a page of somebody else's on another port of the same machine: to browsers that is the same site."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_address[1]}/"
        served.shutdown()


@pytest.mark.live
def test_a_page_of_a_neighbour_cannot_send_our_forms_nor_show_our_pages(browser: Any, server: Any) -> None:
    with signed_in(browser, server) as page:
        secret = page.locator("[name=form-secret]").first.input_value()
        stop = f"{server.address}/operator/tasks/walk/state/stopped"
        # Even with the secret, which it could not know.
        form = f'<form method=post action="{stop}"><input name=form-secret value="{secret}"></form>'
        with evil_site(f"{form}<script>document.forms[0].submit()</script>") as address:
            with page.expect_response(stop) as answered:
                page.goto(address)
            assert answered.value.status == 403 and "cookie" in answered.value.request.all_headers()
        fetching = f"fetch('{stop}', {{method: 'POST', credentials: 'include', mode: 'no-cors'}})"
        with evil_site(f"<script>{fetching}.finally(() => document.title = 'sent')</script>") as address:
            with page.expect_request(stop):
                page.goto(address)
            expect(page).to_have_title("sent")
        with evil_site(f'<iframe src="{server.address}/operator"></iframe>') as address:
            page.goto(address)
            page.wait_for_load_state("networkidle")
            assert "Your tasks" not in "".join(frame.content() for frame in page.frames)
        assert server.show()["state"] == "open"
        page.goto(f"{server.address}/operator")
        assert "Your tasks" in page.locator("main").inner_text()
        assert page.evaluate("document.cookie") == "", "no script sees the cookie"
