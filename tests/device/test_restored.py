"""Restores of a task: who goes on unattended, who asks, and what is no restore at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import crowdml
from crowdml.core.errors import NotAuthorised, TermsViolated
from crowdml.core.keys import SigningKey
from crowdml.device import Ledger
from crowdml.device.device_home import Home
from crowdml.device.sending import MOST_VERSIONS
from crowdml.wire.signed_task import Restored, TaskDocument, sign_task


def kinds(place: Path) -> list[str]:
    with Ledger(place / "ledger.sqlite") as ledger:
        return [json.loads(raw)["kind"] for raw in ledger.entries()]


def test_a_restore_that_was_accepted_in_advance_goes_on_unattended(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, accept_restores=True)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=3)
    server.restore(2, version=1, receipts=1)
    told: list[str] = []
    with crowdml.Device(place, connect=server.connect, warn=told.append) as device:
        assert device.run(rows).used == 3 and device.releases == 6, "what was spent before stays spent"
        assert (device.member.incarnation, device.memory.version) == (2, 4)
    (line,) = told
    assert "restored walk from a backup (incarnation 2, version 1)" in line and "accepted that in advance" in line
    assert kinds(place).count("renew") == 1 and kinds(place).count("charge") == 6
    server.restore(3, version=2, receipts=1)
    with crowdml.Device(place, connect=server.connect) as device:
        assert device.run(rows).releases == 0, "the terms of all rows are used up"
    assert kinds(place).count("renew") == 2


def test_an_owner_who_did_not_accept_in_advance_is_asked(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server)
    server.restore(2, version=0, receipts=0)
    with crowdml.Device(place, connect=server.connect) as device:
        with pytest.raises(TermsViolated, match=r"must confirm\n.*--accept-restored.*crowdml device restores --accept"):
            device.run(rows)
        assert device.releases == 0 and device.member.incarnation == 1
    home = Home(place)
    home.accept_restores(home.member(), True)
    with crowdml.Device(place, connect=server.connect) as device:
        assert device.run(rows, releases=1).used == 1


def test_joining_again_keeps_or_gives_the_consent_and_never_takes_it(make_server: Any, join: Any) -> None:
    server = make_server()
    url = server.invite()
    for given, kept in ((False, False), (True, True), (False, True)):
        place = join(server, url=url, accept_restores=given)
        assert Home(place).member().accept_restores is kept


NO_NOTICE: dict[str, tuple[int, Restored | None]] = {
    "no notice": (2, None),
    "of another incarnation": (3, Restored(after=1, version=0)),
    "of an incarnation before": (2, Restored(after=0, version=0)),
    "of the same incarnation": (2, Restored(after=2, version=0)),
    "version below zero": (2, Restored(after=1, version=-1)),
    "version that cannot be": (2, Restored(after=1, version=MOST_VERSIONS + 1)),
}


@pytest.mark.parametrize("name", NO_NOTICE)
def test_what_is_no_notice_is_not_accepted_in_advance(name: str, make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, accept_restores=True)
    server.incarnate(*NO_NOTICE[name])
    with crowdml.Device(place, connect=server.connect) as device:
        with pytest.raises(TermsViolated, match="the owner must confirm"):
            device.run(rows)
        assert device.releases == 0 and device.member.incarnation == 1


def test_a_forged_notice_is_refused(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, accept_restores=True)
    notice = Restored(after=1, version=0)
    server.incarnate(2, notice, key=SigningKey.make())
    with crowdml.Device(place, connect=server.connect, confirm=lambda document: True) as device:
        with pytest.raises(NotAuthorised, match="another key than the operator's"):
            device.run(rows)
    server.incarnate(2, notice)
    signature = server.signed.signature
    server.incarnate(2, Restored(after=1, version=1))
    server.signed = type(server.signed)(text=server.signed.text, signature=signature, key=server.signed.key)
    with crowdml.Device(place, connect=server.connect, confirm=lambda document: True) as device:
        with pytest.raises(NotAuthorised, match="signature"):
            device.run(rows)
        assert device.releases == 0 and device.member.incarnation == 1


def test_a_notice_does_not_cover_other_terms_or_another_task(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, accept_restores=True)
    notice = Restored(after=1, version=0)
    terms = server.signed.open().definition
    changed = [
        {"privacy": terms["privacy"] | {"epsilon": 6.5, "owner-range": [1.0, 6.5]}},
        {"stop": {"max-releases": 51}},
        {"data": terms["data"] | {"labels": ["lying", "walking"]}},
        {"objective": "another"},
    ]
    for changes in changed:
        server.incarnate(2, notice, **changes)
        with crowdml.Device(place, connect=server.connect, confirm=lambda document: True) as device:
            with pytest.raises(TermsViolated, match="not the one that the owner accepted"):
                device.run(rows)
            assert device.releases == 0 and device.member.incarnation == 1
    other = TaskDocument(task="swim", incarnation=2, definition=terms, arrays=({},), restored=notice)
    server.signed = sign_task(other, server.key)
    with crowdml.Device(place, connect=server.connect, confirm=lambda document: True) as device:
        with pytest.raises(TermsViolated, match="not the one that the owner accepted"):
            device.run(rows)


def test_an_old_notice_does_not_come_back(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, accept_restores=True)
    server.restore(2, version=0, receipts=0)
    old = server.signed
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=2)
        server.restore(3, version=1, receipts=0)
        device.run(rows, releases=1)
        assert device.member.incarnation == 3
        for again in (old, sign_task(old.open(), server.key)):
            server.signed = again
            with pytest.raises(TermsViolated, match="not the one that the owner accepted"):
                device.run(rows)
        # The same incarnation once more, with another version in its notice: a second restore that hides behind it.
        server.incarnate(3, Restored(after=2, version=0))
        with pytest.raises(TermsViolated, match="not the one that the owner accepted"):
            device.run(rows)
        assert device.releases == 3


def test_a_restored_server_may_not_go_back_further_than_its_notice_says(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, accept_restores=True)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=3)
        server.restore(2, version=2, receipts=2)
        server.version = 1
        with pytest.raises(TermsViolated, match="shows version 1, but had 2 before"):
            device.run(rows)
        assert device.releases == 3


def test_a_check_in_on_its_way_during_a_restore_is_settled_under_the_new_signed_task(
    make_server: Any, join: Any, rows: Any, answers: Any
) -> None:
    """The server dies with a check-in unanswered, and the restored one takes it: its receipt names the new hash."""
    server = make_server()

    def restore(_request: httpx.Request) -> httpx.Response:
        server.restore(2, version=0, receipts=0)
        raise httpx.ReadError("cut")

    server.faults.append(restore)
    with crowdml.Device(join(server, accept_restores=True), connect=server.connect) as device:
        assert device.run(rows, releases=2).used == 2
        assert device.releases == 2 and device.member.incarnation == 2 and not device.ledger.unsettled()
    assert len(server.receipts) == 2 and len(server.sent) == 3, "one was sent again, with the same bytes"
    assert server.sent[0] == server.sent[1]


def test_a_crash_while_a_restore_is_taken_note_of_is_made_good(
    make_server: Any, join: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    place = join(server, accept_restores=True)
    with crowdml.Device(place, connect=server.connect) as device:
        device.run(rows, releases=3)
    server.restore(2, version=1, receipts=1)
    for step in ("crowdml.device.task_memory.Memory.begin_again", "crowdml.device.device_home.Home.store"):
        with monkeypatch.context() as broken, crowdml.Device(place, connect=server.connect) as device:

            def crash(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            broken.setattr(step, crash)
            with pytest.raises(KeyboardInterrupt):
                device.run(rows)
    with crowdml.Device(place, connect=server.connect) as device:
        assert device.run(rows, releases=1).used == 1
    assert kinds(place).count("renew") == 1
