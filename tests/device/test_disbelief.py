"""What a device does not believe: receipts, versions, sheets and ledgers that do not fit what it saw before."""

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
from crowdml.device.home import Home
from crowdml.protocol import message

FORGED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "other sheet": ({"sheet": "0" * 64}, TermsViolated),
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


def test_a_sheet_that_changed_is_refused(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    for changes in ({"objective": "another"}, {"stop": {"max-releases": 99}}):
        server.incarnate(2, **changes)
        with crowdml.Device(place, connect=server.connect, confirm=lambda sheet: True) as device:
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

    def confirm(sheet: Any) -> bool:
        asked.append(sheet)
        return True

    with crowdml.Device(place, connect=server.connect, confirm=confirm) as device:
        summary = device.run(rows)
        assert (summary.releases, device.releases) == (3, 6), "what was spent before stays spent"
        assert [own.incarnation for own in asked] == [2]
    assert Home(place).member().sheet == server.signed.hash
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

    with crowdml.Device(join(server), connect=server.connect, confirm=lambda sheet: True) as device:
        assert device.run(rows, watch=restore).releases == 6
        assert device.member.incarnation == 2


def test_a_check_out_is_checked(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    real = server.check_out
    headers = {"Crowdml-Version": "0", "Crowdml-Sheet": server.signed.hash}
    body = server.live.messages.check_out.encode(message(0, server.live.algorithm.check_out(server.server)))
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


def test_a_sheet_file_that_was_changed_is_refused(make_server: Any, join: Any) -> None:
    server = make_server()
    place = join(server)
    path = next(place.glob("tasks/walk/*[0-9a-f].json"))
    path.write_text(path.read_text().replace("walking", "running"))
    with pytest.raises(BadInput, match="not the sheet that was accepted"):
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
