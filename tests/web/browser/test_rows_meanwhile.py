"""Rows that come while a contribution is on its way: none is lost, and what the ledger has counted with stays whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.process import Process
from tests.web.browser.conftest import FILL, JOIN, SOUND

MEANWHILE = """
async (count) => {
  const draw = () => Math.random() * 2 - 1;
  let done = false;
  const sends = (async () => {
    const outcomes = [];
    while (!done || outcomes.length < 3) outcomes.push((await device.contribute()).status);
    return outcomes;
  })();
  for (let at = 0; at < count; at++) await device.addRow([draw(), draw(), draw(), draw()], "abc"[at % 3]);
  done = true;
  return { outcomes: await sends, state: device.state() };
}
"""
NUMBERS = """
async () => (await new core.Store().all("samples")).map(({ sample }) => sample).sort((one, other) => one - other)
"""


def test_rows_come_while_contributions_are_made(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    (link,) = server.invites(1, server.fresh("privacy.max-uses=400", "privacy.epsilon=400.0", file=SOUND))
    page.evaluate(JOIN, link.to_url())
    page.evaluate(FILL, 8)
    found = page.evaluate(MEANWHILE, 60)
    assert set(found["outcomes"]) == {"applied"}
    assert found["state"]["rows"] == 68, "rows were lost"
    assert page.evaluate(NUMBERS) == list(range(68)), "two rows have one number"
    assert page.evaluate("() => device.contribute()")["status"] == "applied"


def test_zero_is_zero_with_either_sign(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    (link,) = server.invites(1, server.fresh(file=SOUND))
    page.evaluate(JOIN, link.to_url())
    kept = "async ([row, label]) => device.addRow(row.map(Number), Number(label))"
    assert page.evaluate(kept, [["1", "0", "0", "2"], "0"]) is True
    assert page.evaluate(kept, [["1", "-0", "0", "2"], "-0"]) is False


def test_an_older_recovery_code_is_no_second_budget(server: Process, make_page: Callable[..., Any]) -> None:
    page, other = make_page(), make_page()
    (link,) = server.invites(1, server.fresh(file=SOUND))
    page.evaluate(JOIN, link.to_url())
    page.evaluate(FILL, 8)
    made = page.evaluate("() => core.exportRecovery(device.account)")
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    opens = "async (made) => { window.device = await core.importRecovery(made.sealed, made.code); }"
    other.evaluate(opens, made)
    other.evaluate(FILL, 8)
    for each, why in ((other, "ledger was set back"), (page, "no longer knows this device")):
        with pytest.raises(Exception, match=why):
            each.evaluate("() => device.contribute()")


def test_what_waits_is_not_sent_while_the_owner_pauses(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    (link,) = server.invites(1, server.fresh(file=SOUND))
    page.evaluate(JOIN, link.to_url())
    page.evaluate(FILL, 8)
    page.context.route("**/check-ins", lambda route: route.abort())
    assert page.evaluate("() => device.contribute()")["status"] == "kept"
    page.context.unroute("**/check-ins")
    page.evaluate("() => device.pause()")
    assert page.evaluate("() => device.resend()") is None
    assert page.evaluate("() => device.state().receipts") == 0
    page.evaluate("() => device.resume()")
    assert page.evaluate("() => device.resend()")["status"] == "applied"


def test_a_decision_in_one_tab_does_not_undo_that_of_another(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    (link,) = server.invites(1, server.fresh(file=SOUND))
    page.evaluate(JOIN, link.to_url())
    other = make_page(page.context)
    other.evaluate("() => device.withdraw()")
    page.evaluate("() => device.pause()")
    (member,) = page.evaluate("() => new core.Store().all('members')")
    assert (member["state"], member["token"]) == ("withdrawn", "")


def test_a_ledger_whose_device_is_forgotten_is_no_second_budget(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    first, second = server.invites(2, server.fresh(file=SOUND))
    page.evaluate(JOIN, first.to_url())
    page.evaluate(FILL, 8)
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    forget = "(account) => new core.Store().run(['members'], 'readwrite', async (w) => w.remove('members', account))"
    page.evaluate(forget, page.evaluate("() => device.account"))
    page.evaluate(JOIN, second.to_url())
    assert page.evaluate("() => device.state().releases") == 1, "the same task has another account"
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    assert page.evaluate("() => device.state().releases") == 2


def test_a_revoked_device_that_is_invited_again_keeps_its_ledger(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    task = server.fresh(file=SOUND)
    first, second = server.invites(2, task)
    page.evaluate(JOIN, first.to_url())
    page.evaluate(FILL, 8)
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    name = page.evaluate("async () => (await new core.Store().all('members'))[0].device")
    server.as_operator("DELETE", f"/v1/tasks/{task}/devices/{name}")
    page.evaluate(JOIN, second.to_url())
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    state = page.evaluate("() => device.state()")
    assert (state["releases"], state["receipts"], state["rows"]) == (2, 1, 8)
