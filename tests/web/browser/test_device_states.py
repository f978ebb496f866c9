"""What a browser device does when something is not as it should be: it says so, and nothing leaves uncharged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.process import Process
from tests.web.browser.conftest import FILL, FREE, JOIN, OPEN, SOUND

REASON = """
async (what) => {
  try { return (await eval(what))?.status ?? "done"; }
  catch (error) { return `${error.reason}: ${error.message}`; }
}
"""
CONTRIBUTE = "device.contribute()"

pytestmark = pytest.mark.live


@pytest.fixture
def joined(server: Process, make_page: Callable[..., Any]) -> Any:
    """A page that has joined a fresh task and has rows; its task stands in `task`."""
    page = make_page()
    page.task = server.fresh(file=SOUND)
    (link,) = server.invites(1, page.task)
    page.link = link.to_url()
    page.evaluate(JOIN, page.link)
    page.evaluate(FILL, 12)
    return page


def tried(page: Any, what: str = CONTRIBUTE) -> str:
    return str(page.evaluate(REASON, what))


def test_paused_by_the_operator_and_by_the_owner(server: Process, joined: Any) -> None:
    server.move("paused", joined.task)
    assert tried(joined) == "waiting" and "paused" in joined.evaluate("() => device.state().sentence")
    server.move("open", joined.task)
    joined.evaluate("() => device.pause()")
    assert tried(joined).startswith("waiting: this device is paused by its owner")
    assert joined.evaluate("() => device.state().status") == "paused"
    joined.evaluate("() => device.resume()")
    assert tried(joined) == "applied"


def test_a_task_that_was_stopped_ends(server: Process, joined: Any) -> None:
    assert tried(joined) == "applied"
    server.move("stopped", joined.task)
    assert tried(joined).startswith("ended: the task has ended")
    entries = joined.evaluate("async () => (await new core.Store().all('entries')).map((entry) => entry.raw)")
    assert '"kind":"close"' in entries[-1] and '"public":1' in entries[-1]
    other = joined.context.new_page()
    other.goto(f"{server.address}/healthz")
    other.evaluate("async () => { window.core = await import('/static/device.js') }")
    assert tried(other, f"core.join({joined.link!r})").startswith("ended:")


def test_a_revoked_device_is_told_so(server: Process, joined: Any) -> None:
    device = joined.evaluate("async () => (await new core.Store().all('members'))[0].device")
    server.as_operator("DELETE", f"/v1/tasks/{joined.task}/devices/{device}")
    assert tried(joined).startswith("revoked: the server no longer knows this device")


def test_a_used_invite_lets_in_nobody_but_the_device_that_has_it(
    server: Process, make_page: Callable[..., Any], joined: Any
) -> None:
    assert tried(joined, f"core.join({joined.link!r}).then((offer) => offer.accept())") == "done"
    other = make_page()
    assert tried(other, f"core.join({joined.link!r})") == "used: a device has used this invite"
    assert other.evaluate("async () => (await new core.Store().all('entries')).length") == 0, "no terms were accepted"
    (link,) = server.invites(1, joined.task)
    other.evaluate("async (link) => { window.offer = await core.join(link); }", link.to_url())
    make_page().evaluate(JOIN, link.to_url())  # somebody is quicker
    assert tried(other, "offer.accept()").startswith("used: the server refused: the invite was used by another device")
    gone = link.to_url().replace(link.code, link.code[::-1])
    assert tried(other, f"core.join({gone!r})") == "refused: the server refused: there is no such invite"


def test_offline_keeps_what_was_charged_and_sends_it_later(joined: Any) -> None:
    joined.context.route("**/check-ins", lambda route: route.abort())
    assert tried(joined) == "kept"
    before = joined.evaluate("() => device.state()")
    assert (before["status"], before["unsettled"], before["releases"]) == ("offline", 1, 1)
    joined.context.unroute("**/check-ins")
    assert tried(joined) == "applied"
    after = joined.evaluate("() => device.state()")
    assert (after["status"], after["unsettled"], after["releases"], after["receipts"]) == ("ready", 0, 1, 1)
    joined.context.set_offline(True)
    assert tried(joined).startswith("offline:")
    assert joined.evaluate("() => device.predict([1, 0, 0, 0])")["value"] in "abc"
    joined.context.set_offline(False)
    assert joined.evaluate("() => device.state().releases") == 1


def test_one_tab_works_at_a_time(make_page: Callable[..., Any], joined: Any) -> None:
    other = make_page(joined.context)
    other.evaluate(
        """() => new Promise((held) => {
          navigator.locks.request("crowdml", () => { held(); return new Promise((end) => { window.end = end; }); });
        })"""
    )
    assert tried(joined).startswith("busy:")
    other.evaluate("() => window.end()")
    for page in (joined, other, joined):
        page.evaluate(FREE)
        assert tried(page) == "applied"
    assert joined.evaluate("() => device.state().releases") == 3


def test_a_wiped_or_shorter_ledger_stops(make_page: Callable[..., Any], joined: Any) -> None:
    assert tried(joined) == "applied"
    cut = """async () => {
      const store = new core.Store();
      await store.run(["entries"], "readwrite", async (within) => within.remove("entries", 1));
    }"""
    joined.evaluate(cut)
    again = make_page(joined.context)
    assert tried(again).startswith("ledger-lost: the server has 1 check-ins of this device, its ledger only 0")
    joined.evaluate("() => new Promise((end) => { indexedDB.deleteDatabase('crowdml').onsuccess = end; })")
    assert tried(again).startswith("ledger-lost: this browser's storage was wiped")
    assert tried(again, f"core.join({joined.link!r}).then((offer) => offer.accept())").startswith("used:")


def test_a_recovery_code_moves_the_device(make_page: Callable[..., Any], joined: Any) -> None:
    assert tried(joined) == "applied"
    made = joined.evaluate("() => core.exportRecovery(device.account)")
    assert "abc" not in made["sealed"] and len(made["code"]) == 39
    other = make_page()
    wrong = made | {"code": made["code"][:-1] + ("a" if made["code"][-1] != "a" else "b")}
    opens = (
        "(recovery) => core.importRecovery(recovery.sealed, recovery.code).then((made) => { window.device = made; })"
    )
    with pytest.raises(Exception, match="does not open"):
        other.evaluate(opens, wrong)
    other.evaluate(opens, made)
    state = other.evaluate("() => device.state()")
    assert (state["releases"], state["receipts"], state["rows"]) == (1, 1, 0)
    other.evaluate(FILL, 4)
    assert tried(other) == "applied"
    assert tried(joined).startswith("revoked:")


def test_withdrawing_erases_and_closes(server: Process, joined: Any) -> None:
    joined.evaluate("() => device.withdraw()")
    state = joined.evaluate("() => device.state()")
    assert (state["status"], state["rows"], state["left"]) == ("withdrawn", 0, 0)
    assert tried(joined).startswith("ended:")
    joined.reload()
    joined.evaluate(OPEN)
    (link,) = server.invites(1, joined.task)
    assert tried(joined, f"core.join({link.to_url()!r}).then((offer) => offer.accept())").startswith("ended:")


def test_what_a_browser_may_not_join_says_why(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    layers = 'model={ kind = "layers", layers = [{ kind = "dense", size = 3 }] }'
    (link,) = server.invites(1, server.fresh(layers, "privacy.clip=1.0", file=SOUND))
    said = tried(page, f"core.join({link.to_url()!r})")
    assert said == 'not-admitted: a phone may not join because a browser does not know the model "layers"'
    (link,) = server.invites(1, server.fresh(file=SOUND))
    other = link.to_url().replace(f"hash={link.task_hash}", f"hash={'0' * 64}")
    assert tried(page, f"core.join({other!r})").startswith("bad-task:")
    other = link.to_url().replace(f"key={link.key}", f"key={'a' * 32}")
    assert tried(page, f"core.join({other!r})").startswith("bad-task: the task is signed with another key")
    assert tried(page, "core.join('https://example.com/join/x#code=a&key=b&hash=c')").startswith("bad-link:")
    nothing = server.fresh('privacy={ mode = "none" }', file=SOUND)
    (link,) = server.invites(1, nothing)
    said = tried(page, f"core.join({link.to_url()!r}).then((offer) => offer.accept())")
    assert said.startswith("terms:") and "no formal guarantee" in said


def test_a_budget_that_is_spent_ends_contributions(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    (link,) = server.invites(1, server.fresh("privacy.max-uses=1", file=SOUND))
    page.evaluate(JOIN, link.to_url())
    assert tried(page).startswith("few-rows: 0 of 4 rows are there")
    assert tried(page, "device.addRow([1, 2, 3], 'a')").startswith("bad-row: a row has 4 numbers")
    assert tried(page, "device.addRow([1, 2, 3, NaN], 'a')").startswith("bad-row:")
    assert tried(page, "device.addRow([1, 2, 3, 4], 'z')").startswith("bad-row: z is not a label")
    page.evaluate(FILL, 3)
    at_once = "() => Promise.all([1, 2, 2].map((number) => device.addRow([number, 0, 0, 0], 'a')))"
    assert page.evaluate(at_once) == [True, True, False]
    assert page.evaluate("() => device.addRow([1, 2, 3, 4], 'a').then(() => device.addRow([1, 2, 3, 4], 'a'))") is False
    assert tried(page) == "applied"
    assert tried(page).startswith("exhausted: 4 of 6 rows were used 1 times each")
