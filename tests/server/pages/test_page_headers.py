"""Headers of every page and every answer: what a browser may do with it, and whose scripts it runs."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import pytest

from tests.support.portal import HTML, Browser, signed_in

PUBLIC = ["/", "/tasks/walk", "/join/walk", "/device", "/nowhere"]
OPERATOR = ["/operator", "/operator/new-task", "/operator/log", "/operator/server", "/operator/tasks/walk"]
ANSWERS = ["/v1/tasks", "/openapi.json", "/healthz", "/metrics", "/v1/devices/me", "/static/pages.css", "/v1/nothing"]


@pytest.fixture(scope="module")
def browser(shared: Any) -> Browser:
    return signed_in(shared)


def policy(answer: Any) -> dict[str, str]:
    """Return a content security policy, by directive."""
    parts = (part.strip().partition(" ") for part in answer.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize("path", PUBLIC + OPERATOR)
def test_a_page_allows_nothing_but_itself(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    found = policy(answer)
    assert found.pop("form-action") == ("'self'" if path in OPERATOR else "'none'")
    assert {found.pop(name) for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert set(found.values()) == {"'none'"} and set(found) == {"default-src", "base-uri", "frame-ancestors"}
    headers = answer.headers
    assert headers["referrer-policy"] == ("same-origin" if path in OPERATOR else "no-referrer")
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    assert headers["integrity-policy"] == "blocked-destinations=(script)"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert "accelerometer=(self)" in headers["permissions-policy"] and "camera=()" in headers["permissions-policy"]


@pytest.mark.parametrize("path", PUBLIC + OPERATOR)
def test_every_script_and_style_names_its_hash(browser: Browser, path: str) -> None:
    page = browser.get(path).text
    tags = re.findall(r"<(?:script|link rel=\"stylesheet\")[^>]*>", page)
    assert tags and not re.search(r"<script[^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:", page)
    for tag in tags:
        address, known = re.search(r'(?:src|href)="([^"]+)"', tag), re.search(r'integrity="sha384-([^"]+)"', tag)
        assert address and known, tag
        assert address[1].startswith("/static/"), "from nobody else"
        content = browser.app.send("GET", address[1]).content
        assert base64.b64encode(hashlib.sha384(content).digest()).decode() == known[1]
    assert not re.findall(r'(?:src|href|action)="(?:https?:)?//', page)


@pytest.mark.parametrize("path", ANSWERS)
def test_no_answer_is_guessed_at(shared: Any, path: str) -> None:
    answer = shared.send("GET", path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert path == "/healthz" or answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_refusals_of_pages_are_pages_with_the_same_headers(browser: Browser) -> None:
    answer = browser.post("/operator/tasks/walk/state/open", {}, origin="https://evil.example")
    assert answer.status_code == 403
    other = browser.post_raw("/operator/tasks/walk/state/open", {"form-secret": "x"})
    assert other.headers["content-type"].startswith("text/html") and "default-src 'none'" in str(other.headers)
    plain = browser.app.send("POST", "/operator/tasks/walk/state/open", headers=browser.own)
    assert plain.json()["error"]["code"] == "sign-in"
    assert HTML["accept"].startswith("text/html")
