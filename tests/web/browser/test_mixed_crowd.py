"""Browsers and Python devices in one crowd: the model is a replay of what all of them have sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.device import Device
from tests.support.process import Process
from tests.web.browser.conftest import FILL, JOIN, SOUND
from tests.web.browser.test_browser_device import replay, sent_by

pytestmark = pytest.mark.live


class Noted:
    """A Python device whose check-ins are noted."""

    def __init__(self, home: Path, link: str, bodies: dict[str, bytes]) -> None:
        Device.join(link, home, accept=lambda offer: True)
        self.device = Device(home, patience_s=20.0)
        draws = np.random.default_rng(len(bodies))
        self.rows = draws.uniform(-1, 1, (12, 4)).astype(np.float32), draws.integers(0, 3, 12)
        ask = self.device.calls.check_in

        def noting(key: str, body: bytes) -> Any:
            bodies[key] = body
            return ask(key, body)

        self.device.calls.check_in = noting  # type: ignore[method-assign]

    def contribute(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        self.device.run(self.rows, releases=1, watch=lambda outcome: found.append((outcome.version, outcome.key)))
        return found


def test_browsers_and_python_devices_train_one_task(
    server: Process, make_page: Callable[..., Any], tmp_path: Path
) -> None:
    task = server.fresh(file=SOUND)
    links = [link.to_url() for link in server.invites(20, task)]
    bodies, order = dict[str, bytes](), list[tuple[int, str]]()
    pages = []
    for link in links[:10]:
        page = make_page()
        sent = sent_by(page)
        page.evaluate(JOIN, link)
        page.evaluate(FILL, 12)
        pages.append((page, sent))
    devices = [Noted(tmp_path / f"device-{number}", link, bodies) for number, link in enumerate(links[10:])]
    for _ in range(3):
        for (page, _), device in zip(pages, devices, strict=True):
            outcome = page.evaluate("() => device.contribute()")
            assert outcome["status"] == "applied"
            order.append((outcome["version"], outcome["key"]))
            order += device.contribute()
    for _, sent in pages:
        bodies |= dict(sent)
    for device in devices:
        device.device.close()
    assert [version for version, _ in order] == list(range(1, 61))
    live = server.live(task)
    shown = live.server_messages.check_out.decode(server.device(task).check_out().content)["content"].parameters
    assert np.array_equal(shown, replay(live, [bodies[key] for _, key in order]))


@pytest.mark.parametrize(
    "algorithm",
    [
        'kind = "fedavg", per-round = 2, epochs = 2, local-batch = 4, rate = { kind = "constant", c = 0.5 }',
        'kind = "fedsgd", per-round = 2, max-rows = 20',
        'kind = "local-sgd", local-steps = 2, local-batch = 4, server-batch = 2, stale = "accept"',
    ],
)
@pytest.mark.parametrize("mode", ["sound", "none"])
def test_other_algorithms_go_on_with_both_kinds_of_device(
    server: Process, make_page: Callable[..., Any], tmp_path: Path, algorithm: str, mode: str
) -> None:
    clip = ", clip = 2.0" if "fedsgd" not in algorithm else ""
    sound = f'mechanism = "gaussian", epsilon = 400.0, delta = 1e-5, max-uses = 20{clip}'
    terms = sound if mode == "sound" else 'mode = "none"'
    changes = [f"algorithm={{ {algorithm} }}", f"privacy={{ {terms} }}"]
    task = server.fresh(*changes, file=SOUND)
    one, two = make_page(), make_page()
    for page, link in zip((one, two), server.invites(2, task), strict=True):
        page.evaluate(JOIN, link.to_url())
        page.evaluate(FILL, 10)
    used = 0
    for _ in range(12):
        for page in (one, two):
            used += page.evaluate("() => device.contribute()")["status"] in ("applied", "queued")
    assert server.show(task)["version"] >= 3 and used >= 6
