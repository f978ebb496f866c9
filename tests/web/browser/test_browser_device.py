"""A browser enrols and contributes: charges are receipts, and the model is a replay of what was received."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.core.ops import ZeroCoins
from crowdml.task.live_task import LiveTask
from tests.support.process import Process
from tests.support.served import Member
from tests.web.browser.conftest import FILL, JOIN, LEDGER, SOUND

PROMISES_NOTHING = ['privacy={ mode = "none" }']


def sent_by(page: Any) -> list[tuple[str, bytes]]:
    """Note every check-in that a page sends: key and bytes."""
    found: list[tuple[str, bytes]] = []

    def note(request: Any) -> None:
        if request.method == "POST" and request.url.endswith("/check-ins"):
            found.append((request.headers["idempotency-key"], request.post_data_buffer))

    page.on("request", note)
    return found


def charges(page: Any) -> dict[str, str]:
    """Read the ledger of a page: the hash of what was charged, by key."""
    entries = [json.loads(raw) for raw in page.evaluate(LEDGER)["entries"]]
    return {entry["key"]: entry["body"] for entry in entries if entry["kind"] == "charge"}


def receipts(server: Process, device: Any) -> dict[str, str]:
    found = server.send("GET", "/v1/devices/me/receipts", headers={"authorization": f"Bearer {device}"}).json()
    return {receipt["key"]: receipt["body"] for receipt in found["receipts"]}


def token_of(page: Any) -> str:
    return str(page.evaluate("async () => (await new core.Store().all('members'))[0].token"))


def replay(live: LiveTask, bodies: list[bytes]) -> Any:
    """Fold check-ins in as a server does, each by itself."""
    part = live.server.last.server
    state = part.init(ZeroCoins())
    for version, body in enumerate(bodies):
        message = live.server_messages.check_in.decode(body)
        state, _ = part.absorb(state, part.row(), message["content"], np.int64(version - int(message["version"])))
        state, _ = part.commit(state)
    return part.check_out(state).parameters


@pytest.mark.parametrize(
    "changes", [pytest.param([], id="sound"), pytest.param(PROMISES_NOTHING, id="none", marks=pytest.mark.live)]
)
def test_a_browser_contributes(server: Process, make_page: Callable[..., Any], changes: list[str]) -> None:
    task = server.fresh(*changes, file=SOUND)
    page = make_page()
    sent = sent_by(page)
    (link,) = server.invites(1, task)
    offer = page.evaluate(JOIN, link.to_url())
    assert offer["promised"]["guarantee"] == (not changes)
    state = page.evaluate(FILL, 12)
    assert (state["rows"], state["releases"], state["status"]) == (12, 0, "ready")
    outcomes = [page.evaluate("() => device.contribute()") for _ in range(5)]
    assert [outcome["status"] for outcome in outcomes] == ["applied"] * 5
    assert (
        charges(page)
        == receipts(server, token_of(page))
        == {key: hashlib.sha256(body).hexdigest() for key, body in sent}
    )
    live = server.live(task)
    known: Member = server.device(task)
    body = known.check_out().content
    shown = live.server_messages.check_out.decode(body)["content"].parameters
    assert np.array_equal(shown, replay(live, [body for _, body in sent]))
    state = page.evaluate("() => device.state()")
    assert state["receipts"] == state["releases"] == 5 and state["version"] == 5 and state["unsettled"] == 0
    assert page.evaluate("() => device.predict([1, 0, 0, 0])")["value"] in "abc"
