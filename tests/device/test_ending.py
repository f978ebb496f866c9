"""The end of a task: heard from the server or reached by the terms, closed in the ledger, and freed under the cap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from crowdml.core.errors import CapReached
from crowdml.device import Device, Ledger
from crowdml.device.home import Home
from crowdml.device.joining import leave
from crowdml.device.status import ledger_report
from crowdml.privacy import Promise


def state(place: Path, account: str = "walk") -> Any:
    with Ledger(place / "ledger.sqlite") as ledger:
        return ledger.chain.tasks[account]


def test_an_announced_end_closes_the_task_and_frees_what_was_not_released(
    make_server: Any, join: Any, rows: Any
) -> None:
    server = make_server()
    place = join(server, cap=(8.0, None))
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=1)
    with pytest.raises(CapReached, match="the owner's cap"):
        join(make_server("name=run"))
    server.state = "stopped"
    with Device(place, connect=server.connect) as device:
        assert "closed" in device.run(rows).reason
    assert state(place).closed and state(place).reserved().epsilon == pytest.approx(2.0, rel=1e-3)
    join(make_server("name=run"))
    with Device(place, "walk", connect=server.connect) as device:
        server.state = "open"  # a server that takes its word back gets nothing more
        ended = device.run(rows)
        assert ended.releases == 0 and "ended" in ended.reason and len(server.sent) == 1


def test_the_last_release_of_the_terms_closes_the_task(make_server: Any, join: Any, rows: Any) -> None:
    """Three uses were promised to each sample, but a device may make two releases: a third use is never left."""
    server = make_server("stop.max-releases=2")
    place = join(server)
    with Device(place, connect=server.connect) as device:
        assert device.run(rows, releases=2).releases == 2
    assert state(place).closed and state(place).reserved().epsilon == pytest.approx(4.0, rel=1e-3)
    told = ledger_report(Home(place), compare=False)["tasks"]["walk"]
    assert told["closed"] and told["uses_left"] == 0
    with Device(place, connect=server.connect) as device:
        assert device.run(rows).reason == "all 2 releases of this device are made"


def test_a_device_that_does_not_run_hears_of_ends_when_its_cap_is_full(make_server: Any, join: Any) -> None:
    first, second = make_server(), make_server("name=run")

    place = join(first, cap=(8.0, None))
    real = second.handle

    def handle(request: httpx.Request) -> httpx.Response:
        # Both tasks live behind one address here: what the first one's device asks goes there.
        if request.url.path == "/v1/devices/me" and not second.devices:
            answer: httpx.Response = first.handle(request)
        else:
            answer = real(request)
        return answer

    second.handle = handle
    with pytest.raises(CapReached):
        join(second)
    assert not state(place).closed, "a task that goes on is not closed"
    first.state = "stopped"
    join(second)
    assert state(place).closed and state(place).reserved() == Promise(epsilon=0.0)
    assert [own.task for own in Home(place).members()] == ["run", "walk"]


def test_an_owner_who_leaves_frees_nothing(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, cap=(8.0, None))
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=1)
    leave(Home(place), Home(place).member(), server.connect)
    assert state(place).reserved() == Promise(epsilon=6.0)
    with pytest.raises(CapReached):
        join(make_server("name=run"))
