"""Terms: refused where they say nothing; ended in public, closed in the ledger, and freed under the cap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.core.errors import CapReached
from crowdml.device import Device, Ledger
from crowdml.device.device_home import Home
from crowdml.device.joining import leave
from crowdml.device.owner_reports import ledger_report
from crowdml.privacy import Promise
from crowdml.task.live_task import definition_of
from crowdml.wire import TaskDocument, sign_task


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
    assert [member.task for member in Home(place).members()] == ["run", "walk"]


def test_an_owner_who_leaves_frees_nothing(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, cap=(8.0, None))
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=1)
    leave(Home(place), Home(place).member(), server.connect)
    assert state(place).reserved() == Promise(epsilon=6.0)
    with pytest.raises(CapReached):
        join(make_server("name=run"))


GAUSSIAN = "privacy={ epsilon = 6.0, mechanism = 'gaussian', max-uses = 3, delta = 1e-2, clip = 1.0, units = 99 }"


def table(count: int) -> Any:
    draws = np.random.default_rng(count)
    rows = draws.normal(size=(count, 3)).astype(np.float32)
    return rows, (rows[:, 0] > 0).astype(np.int32)


def test_the_number_of_units_is_signed_with_the_terms(make_server: Any) -> None:
    document = make_server(GAUSSIAN).signed.open()
    assert document.definition["privacy"]["units"] == 99


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        ({"epsilon": 1000.5, "owner-range": None}, "ε = 1000.5 promises nothing"),
        ({"owner-range": [1.0, 1e6]}, "ε = 1e.06 promises nothing"),
        ({"delta": 0.5}, "delta = 0.5 is above 0.0001"),
        ({"delta": 1e-3, "units": 1000}, "delta = 0.001 is no promise to 1000 samples"),
    ],
    ids=["ε", "owner's ε", "δ", "δ of so many"],
)
def test_a_signed_task_whose_terms_say_nothing_is_refused_at_the_join(
    make_server: Any, join: Any, terms: dict[str, Any], what: str, tmp_path: Path
) -> None:
    """An operator whose server does not check signs what it likes; the device works it out for itself."""
    server = make_server()
    made = definition_of(server.task)
    made["privacy"] |= terms
    document = TaskDocument(task=server.task.name, incarnation=1, definition=made, arrays=({},))
    server.signed = sign_task(document, server.key)
    with pytest.raises(BadInput, match=what):
        join(server)
    assert not server.devices and not (tmp_path / "home").exists()


def test_joining_with_rows_refuses_a_delta_that_says_nothing_to_them(
    make_server: Any, join: Any, tmp_path: Path
) -> None:
    server = make_server(GAUSSIAN)
    with pytest.raises(BadInput, match=r"no promise to 100 samples.*this device alone") as refused:
        join(server, rows=table(100))
    assert "ask the operator" in refused.value.hint and not server.devices and not (tmp_path / "home").exists()
    join(server, rows=table(99))
    assert len(server.devices) == 1


def test_a_device_with_too_many_rows_for_its_delta_sends_nothing(make_server: Any, join: Any) -> None:
    server = make_server(GAUSSIAN)
    place = join(server)
    with Device(place, connect=server.connect) as device:
        with pytest.raises(BadInput, match="no promise to 100 samples"):
            device.run(table(100))
        assert not server.sent and device.releases == 0


def test_a_stream_is_stopped_before_it_has_too_many_rows_for_its_delta(make_server: Any, join: Any) -> None:
    """Batches of four: 24 of them are 96 samples, and the next would be the hundredth."""
    server = make_server(GAUSSIAN)
    place = join(server)
    rows, labels = table(400)
    with Device(place, connect=server.connect) as device, pytest.raises(BadInput, match="no promise to 100 samples"):
        device.run(iter(list(zip(rows, labels.tolist(), strict=True))))
    assert len(server.sent) == 24
    with Ledger(place / "ledger.sqlite") as ledger:
        assert ledger.chain.tasks["walk"].releases == 24


def test_the_rows_of_one_device_say_nothing_against_a_promise_to_devices(make_server: Any, join: Any) -> None:
    server = make_server(GAUSSIAN.replace("max-uses = 3", "unit = 'device'"))
    place = join(server, rows=table(400))
    with Device(place, connect=server.connect) as device:
        assert device.run(table(400), releases=1).releases == 1
