"""Tabs that are killed at any moment: nothing is released without a charge, and resends are the same bytes."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.process import Process
from tests.support.served import WAIT_S
from tests.web.browser.conftest import FILL, JOIN, LEDGER, SOUND

START = "() => { (async () => { for (;;) await device.contribute(); })().catch(() => undefined); }"
LONGEST_MS = 120
STAGES = ("", "/check-out", "/check-ins", "/check-ins")
"""What a page must have asked for before a kill comes near; nothing: it may come before anything was asked."""


class Watched:
    """A profile of a browser, whose every check-in is noted."""

    def __init__(self, page: Any) -> None:
        self.context, self.bodies = page.context, dict[str, set[str]]()
        self.asked: list[str] = []
        self.context.on("request", self._note)

    def _note(self, request: Any) -> None:
        self.asked.append(request.url)
        if request.method == "POST" and request.url.endswith("/check-ins"):
            sent = self.bodies.setdefault(request.headers["idempotency-key"], set())
            sent.add(hashlib.sha256(request.post_data_buffer or b"").hexdigest())


def _killed(server: Process, make_page: Callable[..., Any], moments: int, seed: int) -> None:
    draw = random.Random(seed)
    task = server.fresh("privacy.max-uses=2000", "privacy.epsilon=400.0", file=SOUND)
    page = make_page()
    watched = Watched(page)
    (link,) = server.invites(1, task)
    page.evaluate(JOIN, link.to_url())
    page.evaluate(FILL, 40)
    token = page.evaluate("async () => (await new core.Store().all('members'))[0].token")
    waited = 0
    for _ in range(moments):
        stage, watched.asked = draw.choice(STAGES), []
        page.evaluate(START)
        deadline = time.monotonic() + WAIT_S
        while not any(url.endswith(stage) for url in watched.asked) and stage:
            assert time.monotonic() < deadline, watched.asked
            page.wait_for_timeout(1)
        page.wait_for_timeout(draw.choice((0, draw.uniform(0, LONGEST_MS))))
        page.close(run_before_unload=False)
        page = make_page(watched.context)
        found = page.evaluate(LEDGER)
        entries = [json.loads(raw) for raw in found["entries"]]
        charged = {entry["key"]: entry["body"] for entry in entries if entry["kind"] == "charge"}
        received = _receipts(server, token)
        assert received.items() <= charged.items(), "a release without a charge, or with other bytes"
        assert all(sent == {charged[key]} for key, sent in watched.bodies.items()), "other bytes were sent again"
        waiting = {each["key"] for each in found["unsettled"]}
        assert charged.keys() - received.keys() <= waiting, "what was charged and not received was forgotten"
        waited += len(waiting)
    while page.evaluate("() => device.resend()") is not None:
        pass
    found = page.evaluate("() => device.state()")
    assert found["unsettled"] == 0 and found["releases"] == len(_receipts(server, token)) > 0
    assert moments < 50 or waited, "no kill came between a charge and its receipt"


def _receipts(server: Process, token: str) -> dict[str, str]:
    found, after = dict[str, str](), 0
    while after is not None:
        answer = server.send(
            "GET", f"/v1/devices/me/receipts?after={after}", headers={"authorization": f"Bearer {token}"}
        )
        page = answer.json()
        found |= {receipt["key"]: receipt["body"] for receipt in page["receipts"]}
        after = page["next"]
    return found


def test_a_dozen_kills(server: Process, make_page: Callable[..., Any]) -> None:
    _killed(server, make_page, 12, seed=1)


@pytest.mark.live
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 6))
def test_two_hundred_kills(server: Process, make_page: Callable[..., Any], seed: int) -> None:
    _killed(server, make_page, 50, seed)
