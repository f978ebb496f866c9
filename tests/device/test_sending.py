"""What a device does not believe: receipts, versions, signed tasks and ledgers that do not fit what it saw before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.core.errors import MalformedMessage, TermsViolated
from crowdml.device import Ledger
from crowdml.device.device_home import Home
from crowdml.device.restores import Gap, resync
from crowdml.wire import message

FORGED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "other hash": ({"task_hash": "0" * 64}, TermsViolated),
    "other key": ({"key": "another-key"}, MalformedMessage),
    "other task": ({"task": "swim"}, MalformedMessage),
    "other status": ({"status": "fine"}, MalformedMessage),
    "no number": ({"number": None}, MalformedMessage),
    "too many": ({"number": 2}, TermsViolated),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_receipt_is_checked_and_settles_nothing_if_it_is_wrong(
    name: str, make_server: Any, join: Any, rows: Any, answers: Any
) -> None:
    changes, kind = FORGED[name]
    server = make_server()

    def forge(request: httpx.Request) -> httpx.Response:
        response: httpx.Response = server.check_in("token-0", request)
        forged: httpx.Response = answers.ok(200, response.json() | changes)
        return forged

    server.faults.append(forge)
    with crowdml.Device(join(server), connect=server.connect) as device:
        with pytest.raises(kind):
            device.run(rows)
        assert len(device.ledger.unsettled()) == 1 and device.memory.state() is None


def test_a_version_that_goes_back_is_refused(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=3)
    server.version = 2
    with crowdml.Device(place, connect=server.connect) as device:
        with pytest.raises(TermsViolated, match="shows version 2, but had 3 before"):
            device.run(rows)
        assert device.releases == 3, "nothing was charged"


def test_receipts_that_go_back_are_refused(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    with crowdml.Device(join(server), connect=server.connect) as device:
        device.run(rows, releases=2)
        server.devices["token-0"] = 1
        with pytest.raises(TermsViolated, match="it was set back"):
            device.run(rows, releases=1)


def test_a_ledger_that_was_set_back_stops_the_device(make_server: Any, join: Any, rows: Any, tmp_path: Path) -> None:
    server = make_server()
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=1)
    shutil.copytree(place, tmp_path / "old")
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=2)
    with crowdml.Device(tmp_path / "old", connect=server.connect) as device:
        with pytest.raises(TermsViolated, match="3 check-ins of this device, its ledger only 1 charges"):
            device.run(rows)
        assert device.releases == 1 and len(server.sent) == 3


def test_a_signed_task_that_changed_is_refused(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    for changes in ({"objective": "another"}, {"stop": {"max-releases": 99}}):
        server.incarnate(2, **changes)
        with crowdml.Device(place, connect=server.connect, confirm=lambda document: True) as device:
            with pytest.raises(TermsViolated, match="not the one that the owner accepted"):
                device.run(rows)


def test_a_restored_task_goes_on_once_the_owner_confirms(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=3)
    server.incarnate(2)
    server.version, server.devices["token-0"] = 1, 1
    with crowdml.Device(place, connect=server.connect) as device:
        with pytest.raises(TermsViolated, match="restored it from a backup"):
            device.run(rows)
    asked: list[Any] = []

    def confirm(document: Any) -> bool:
        asked.append(document)
        return True

    with crowdml.Device(place, connect=server.connect, confirm=confirm) as device:
        summary = device.run(rows)
        assert (summary.releases, device.releases) == (3, 6), "what was spent before stays spent"
        assert [document.incarnation for document in asked] == [2]
    assert Home(place).member().task_hash == server.signed.hash
    with Ledger(place / "ledger.sqlite") as ledger:
        assert [json.loads(raw)["kind"] for raw in ledger.entries()].count("renew") == 1
    with crowdml.Device(place, connect=server.connect) as device:
        assert device.run(rows).releases == 0


def test_a_restore_while_the_device_runs(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()

    def restore(outcome: Any) -> None:
        if outcome.number == 2 and server.incarnation == 1:
            server.incarnate(2)
            server.version, server.devices["token-0"] = 0, 0

    with crowdml.Device(join(server), connect=server.connect, confirm=lambda document: True) as device:
        assert device.run(rows, watch=restore).releases == 6
        assert device.member.incarnation == 2


def test_a_check_out_is_checked(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    real = server.check_out
    headers = {"Crowdml-Version": "0", "Crowdml-Task-Hash": server.signed.hash}
    body = server.live.messages.check_out.encode(message(0, server.part.check_out(server.server)))
    with crowdml.Device(join(server), connect=server.connect) as device:
        for wrong in (
            httpx.Response(200, headers=headers, content=body[:-1]),
            httpx.Response(200, headers=headers, content=body + b"x"),
            httpx.Response(200, headers=headers, content=b"X" + body[1:]),
            httpx.Response(200, headers=headers | {"Crowdml-Version": "1"}, content=body),
            httpx.Response(304, headers=headers),
        ):
            server.check_out = lambda request, wrong=wrong: wrong
            with pytest.raises(MalformedMessage):
                device.run(rows)
        server.check_out = real
        assert device.releases == 0 and device.run(rows, releases=1).used == 1


def test_a_signed_task_file_that_was_changed_is_refused(make_server: Any, join: Any) -> None:
    server = make_server()
    place = join(server)
    path = next(place.glob("tasks/walk/*[0-9a-f].json"))
    path.write_text(path.read_text().replace("walking", "running"))
    with pytest.raises(BadInput, match="not the signed task that was accepted"):
        crowdml.Device(place, connect=server.connect)


def test_a_folder_without_its_ledger_does_not_begin_a_new_one(make_server: Any, join: Any) -> None:
    server = make_server()
    place = join(server)
    (place / "ledger.sqlite").unlink()
    with pytest.raises(TermsViolated, match="0 entries are there, 1 were written"):
        crowdml.Device(place, connect=server.connect)
    (place / "ledger.sqlite").unlink()
    (place / "ledger.sqlite-head").unlink()
    with pytest.raises(TermsViolated, match="has not accepted"):
        crowdml.Device(place, connect=server.connect)


def test_a_receipt_with_a_version_that_cannot_be_is_refused_and_forgotten(
    make_server: Any, join: Any, rows: Any, answers: Any
) -> None:
    """One receipt that names version 2⁶² must not make every later version look like one that was set back."""
    server = make_server("algorithm.max-staleness=5")
    forged = [2**62, 8]  # more than any task has; more than the task's rule about old check-ins leaves room for

    def forge(request: httpx.Request) -> httpx.Response:
        response: httpx.Response = server.check_in("token-0", request)
        answer: httpx.Response = answers.ok(200, response.json() | {"version": forged.pop(0)})
        return answer

    with crowdml.Device(join(server), connect=server.connect) as device:
        device.run(rows, releases=1)
        server.faults.extend([forge, forge])
        for _ in range(2):
            with pytest.raises(MalformedMessage, match="names version"):
                device.run(rows, releases=1)
            assert len(device.ledger.unsettled()) == 1 and device.memory.version == 1
        assert not forged and device.run(rows, releases=1).used == 2, "the one before is settled, and one more is made"


@pytest.mark.parametrize("changes, version", [((), 2**62), (("stop.max-versions=9",), 10)])
def test_a_check_out_with_a_version_that_cannot_be_is_refused_and_forgotten(
    changes: tuple[str, ...], version: int, make_server: Any, join: Any, rows: Any
) -> None:
    server = make_server(*changes)
    with crowdml.Device(join(server), connect=server.connect) as device:
        server.version = version
        with pytest.raises(MalformedMessage, match=f"names version {version}, but this task has at most"):
            device.run(rows)
        server.version = 0
        assert device.run(rows, releases=1).used == 1


def test_a_device_that_was_locked_out_comes_back_once_its_owner_confirms(
    make_server: Any, join: Any, rows: Any
) -> None:
    server = make_server()
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=2)
        device.memory.used("locked out by an earlier release", 2, 2**62)
        with pytest.raises(TermsViolated, match=r"it was set back\n.*crowdml device resync"):
            device.run(rows)
    home, asked = Home(place), list[Gap]()

    def decide(gap: Gap) -> bool:
        asked.append(gap)
        return len(asked) > 1

    with pytest.raises(BadInput, match="did not confirm"):
        resync(home, home.member(), decide, server.connect)
    with crowdml.Device(place, connect=server.connect) as device, pytest.raises(TermsViolated):
        device.run(rows)
    assert resync(home, home.member(), decide, server.connect).went_back
    assert asked[0] == asked[1] == Gap(version_seen=2**62, version=2, receipts_seen=2, receipts=2)
    with crowdml.Device(place, connect=server.connect) as device:
        assert device.run(rows, releases=1).used == 1 and device.releases == 3, "the ledger stayed as it was"
    assert not resync(home, home.member(), decide, server.connect).went_back and len(asked) == 2


def test_the_way_back_is_no_way_round_a_ledger_or_a_signed_task(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=2)
        device.memory.used("locked out", 2, 99)
    home = Home(place)
    server.devices["token-0"] = 3
    with pytest.raises(TermsViolated, match="its ledger only 2 charges"):
        resync(home, home.member(), lambda gap: True, server.connect)
    server.incarnate(2)
    with pytest.raises(TermsViolated, match="signed task"):
        resync(home, home.member(), lambda gap: True, server.connect)
