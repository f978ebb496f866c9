"""A real server, and pages of a real browser that use the engine of the browser device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.browser import WAIT_MS
from tests.support.process import Process

SOUND = """
crowdml = 1
name = "sound"
objective = "Tell three things apart"
[data]
features = 4
labels = ["a", "b", "c"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 4
rate = { kind = "inverse-sqrt", c = 5.0 }
[privacy]
mechanism = "gaussian"
epsilon = 40.0
delta = 1e-5
max-uses = 50
statistics-epsilon = 4.0
"""
OPEN = """
async () => {
  window.core = await import("/static/device.js");
  const [found] = await core.Device.list();
  window.device = found && found.state === "joined" ? await core.Device.open(found.account) : null;
}
"""
JOIN = """
async (link) => {
  const offer = await core.join(link);
  window.device = await offer.accept({ withoutGuarantee: !offer.promised.guarantee });
  return { promised: offer.promised, leaving: offer.leaving };
}
"""
FILL = """
async (count) => {
  const draw = () => Math.random() * 2 - 1;
  for (let at = 0; at < count; at++) await device.addRow([draw(), draw(), draw(), draw()], "abc"[at % 3]);
  return device.state();
}
"""
FREE = """
async () => {
  const isHeld = async () => (await navigator.locks.query()).held.some(({ name }) => name === "crowdml");
  while (await isHeld()) await new Promise((done) => setTimeout(done, 10));
}
"""
"""A browser lets go of a lock a moment after the page that held it: wait until it has."""
LEDGER = """
async () => {
  const store = new core.Store();
  const entries = await store.all("entries");
  const unsettled = await store.all("unsettled");
  return {
    entries: entries.map(({ raw }) => raw),
    unsettled: unsettled.map(({ key, body }) => ({ key, body: Array.from(body) })),
  };
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server process, for all tests of a file."""
    process = Process(tmp_path_factory.mktemp("browser") / "server")
    yield process
    process.end()


@pytest.fixture
def make_page(browser: Any, server: Process) -> Iterator[Callable[..., Any]]:
    """Make pages of one profile each, or of a profile that is given."""
    contexts = []

    def make(context: Any = None) -> Any:
        if context is None:
            context = browser.new_context()
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{server.address}/healthz")
        page.evaluate(OPEN)
        page.evaluate(FREE)
        return page

    yield make
    for context in contexts:
        context.close()
