"""Rows that come while a contribution is on its way: none is lost, and what the ledger has counted with stays whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def test_used_samples_written_differently_are_doubtful(server: Process, make_page: Callable[..., Any]) -> None:
    page = make_page()
    (link,) = server.invites(1, server.fresh(file=SOUND))
    page.evaluate(JOIN, link.to_url())
    rows, digits = (
        [{"row": [at / 10 + digit, 0.5, 0.25, 0], "label": "abc"[at % 3]} for at in range(8)] for digit in (0, 0.001)
    )
    ask = "(rows) => device.areDoubtful(rows)"
    assert page.evaluate(ask, rows) is False
    page.evaluate("async (rows) => { for (const { row, label } of rows) await device.addRow(row, label); }", rows)
    assert page.evaluate(ask, digits) is False, "nothing was used yet"
    assert page.evaluate("() => device.contribute()")["status"] == "applied"
    assert page.evaluate(ask, rows) is False and page.evaluate(ask, rows + digits[:6]) is False
    assert page.evaluate(ask, digits) is True
    page.evaluate("() => device.eraseRows()")
    assert page.evaluate(ask, digits) is True, "erasing rows does not erase their uses"
