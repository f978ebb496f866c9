"""Attacks on a device's one budget: older ledgers, forgotten devices, other tabs, and storage that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.process import Process
from tests.web.browser.conftest import FILL, JOIN, LEDGER, SOUND

FAIL = """
(table) => {
  window.added = IDBObjectStore.prototype.add;
  IDBObjectStore.prototype.add = function (value) {
    const request = window.added.call(this, value);
    if (this.name === table) this.transaction.abort();
    return request;
  };
}
"""


def test_an_older_recovery_code_is_no_second_budget(server: Process, make_page: Callable[..., Any]) -> None:
    page, other = make_page(), make_page()
    (link,) = server.invites(1, server.fresh(file=SOUND))
    page.evaluate(JOIN, link.to_url())
    page.evaluate(FILL, 8)
    made = page.evaluate("() => core.exportRecovery(device.account)")
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    opens = "async (made) => { window.device = await core.importRecovery(made.sealed, made.code); }"
    with pytest.raises(Exception, match="1 check-ins of this device, this code knows of 0"):
        other.evaluate(opens, made)
    assert not other.evaluate("() => core.Device.list()"), "nothing of an older ledger is kept"
    with pytest.raises(Exception, match="no longer knows this device"):
        page.evaluate("() => device.contribute()")
    other.evaluate(opens, page.evaluate("() => core.exportRecovery(device.account)"))
    other.evaluate(FILL, 8)
    assert other.evaluate("() => device.contribute()")["status"] == "applied"
    assert other.evaluate("() => device.state().releases") == 2


def test_an_older_recovery_code_does_not_forget_a_refused_release(
    server: Process, make_page: Callable[..., Any]
) -> None:
    page, other = make_page(), make_page()
    task = server.fresh("algorithm.stale=drop", file=SOUND)
    (link,) = server.invites(1, task)
    page.evaluate(JOIN, link.to_url())
    page.evaluate(FILL, 8)
    made = page.evaluate("() => core.exportRecovery(device.account)")
    faster = server.device(task)

    def overtake(route: Any) -> None:
        assert faster.check_in().status_code == 200
        route.continue_()

    page.route("**/check-ins", overtake)
    assert page.evaluate("() => device.contribute()")["status"] == "refused"
    page.unroute("**/check-ins")
    opens = "async (made) => { window.device = await core.importRecovery(made.sealed, made.code); }"
    with pytest.raises(Exception, match="1 check-ins of this device, this code knows of 0"):
        other.evaluate(opens, made)
    other.evaluate(opens, page.evaluate("() => core.exportRecovery(device.account)"))
    other.evaluate(FILL, 8)
    assert other.evaluate("() => device.contribute()")["status"] == "applied"
    assert other.evaluate("() => device.state().releases") == 2


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


def test_a_revoked_device_that_joins_again_keeps_its_ledger(server: Process, make_page: Callable[..., Any]) -> None:
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


@pytest.mark.parametrize("table", ["entries", "unsettled"])
def test_nothing_is_sent_where_a_charge_cannot_be_stored(
    server: Process, make_page: Callable[..., Any], table: str
) -> None:
    page = make_page()
    (link,) = server.invites(1, server.fresh(file=SOUND))
    page.evaluate(JOIN, link.to_url())
    page.evaluate(FILL, 8)
    sent = list[str]()
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    page.evaluate(FAIL, table)
    with pytest.raises(Exception, match="storage cannot be used"):
        page.evaluate("() => device.contribute()")
    assert not sent and len(page.evaluate(LEDGER)["entries"]) == 1
    page.evaluate("() => { IDBObjectStore.prototype.add = window.added; }")
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    assert len(sent) == 1 and page.evaluate("() => device.state().releases") == 1
