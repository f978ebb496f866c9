"""Joining: what is checked, what the owner decides, what is written down before what is sent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from crowdml.core import BadInput
from crowdml.core.errors import MalformedMessage, NotAuthorised, TermsViolated, Unreachable
from crowdml.core.keys import SigningKey, fingerprint
from crowdml.device import Device, Ledger
from crowdml.device.device_home import Home
from crowdml.device.joining import leave
from crowdml.device.task_memory import renumber
from crowdml.wire import SignedTask
from crowdml.wire.join_link import InviteLink

NONE = ("privacy={ mode = 'none' }",)
DEVICE = ("privacy.unit=device", "privacy.max-uses=3", "privacy.statistics-epsilon=0.0", "stop.max-releases=9")


def entries(place: Path) -> list[dict[str, Any]]:
    with Ledger(place / "ledger.sqlite") as ledger:
        return [json.loads(raw) for raw in ledger.entries()]


def test_a_device_joins_and_knows_what_it_accepted(make_server: Any, join: Any) -> None:
    server = make_server()
    place = join(server)
    home = Home(place)
    member = home.member()
    assert (member.state, member.token, member.code, member.incarnation) == ("joined", "token-0", "", 1)
    assert member.operator == fingerprint(server.key.public) and member.task_hash == server.signed.hash
    assert home.signed_task(member) == server.signed
    assert entries(place)[0] | {"kind": "accept", "task-hash": server.signed.hash, "epsilon": "6"} == entries(place)[0]


def test_the_owner_reads_what_was_checked_and_can_refuse(make_server: Any, join: Any, tmp_path: Path) -> None:
    server, shown = make_server(), []

    def refuse(offer: Any) -> bool:
        shown.append(offer.explain())
        return False

    with pytest.raises(BadInput, match="did not accept"):
        join(server, accept=refuse)
    assert "ε = 6" in shown[0].promise and {"update/0/w", "weight"} <= {part.name for part in shown[0].message_parts}
    assert [request.method for request in server.requests] == ["GET"], "nothing was sent"
    assert not (tmp_path / "home").exists(), "nothing was kept"


def test_no_guarantee_is_accepted_apart(make_server: Any, join: Any) -> None:
    server = make_server(*NONE)
    with pytest.raises(BadInput, match="no formal guarantee"):
        join(server, accept_no_guarantee=lambda offer: False)
    place = join(server)
    assert entries(place)[0]["epsilon"] == "Infinity"
    asked: list[Any] = []
    join(make_server(), "sound", accept_no_guarantee=asked.append)
    assert not asked, "nobody is asked where there is a guarantee"


def test_a_signed_task_that_is_not_the_invites_is_refused(make_server: Any, join: Any) -> None:
    server = make_server()
    url = server.invite()
    server.incarnate(2)
    with pytest.raises(TermsViolated, match="another signed task"):
        join(server, url=url)


def test_a_signed_task_that_another_key_signed_is_refused(make_server: Any, join: Any) -> None:
    server = make_server()
    link = InviteLink.parse(server.invite())
    server.key = SigningKey.make()
    server.incarnate(1)  # the same text, so the same hash
    assert server.signed.hash == link.task_hash
    with pytest.raises(NotAuthorised, match="another key"):
        join(server, url=link.to_url())
    server.signed = SignedTask(text=server.signed.text, signature=bytes(64), key=server.signed.key)
    forged = InviteLink.parse(server.invite())
    with pytest.raises(NotAuthorised, match="signature"):
        join(server, url=forged.to_url())


def test_a_signed_task_that_is_none(make_server: Any, join: Any) -> None:
    server = make_server()
    server.handle = lambda request: httpx.Response(200, json={"signed_task": "?"})
    with pytest.raises(MalformedMessage):
        join(server)


def test_terms_are_written_down_before_the_server_hears_of_it(make_server: Any, join: Any, tmp_path: Path) -> None:
    server, seen = make_server(), []
    real = server.enrol

    def enrol(content: dict[str, str]) -> httpx.Response:
        seen.append((entries(tmp_path / "home")[0]["task-hash"], Home(tmp_path / "home").member().state))
        response: httpx.Response = real(content)
        return response

    server.enrol = enrol
    join(server)
    assert seen == [(server.signed.hash, "joining")]


def test_a_lost_answer_can_be_asked_again(make_server: Any, join: Any, tmp_path: Path) -> None:
    server, url = make_server(), None
    real, lost = server.enrol, []

    def lose(content: dict[str, str]) -> httpx.Response:
        lost.append(real(content))
        raise httpx.ReadError("cut")

    url = server.invite()
    server.enrol = lose
    with pytest.raises(Unreachable):
        join(server, url=url)
    assert len(lost) > 1, "it was tried again at once"
    assert {response.status_code for response in lost} == {201, 200}
    with pytest.raises(BadInput, match="not finished joining"):
        Device(tmp_path / "home", connect=server.connect)
    server.enrol = real
    place = join(server, url=url)
    assert Home(place).member().state == "joined" and len(entries(place)) == 1
    assert len(set(server.invites.values())) == 1


@pytest.mark.parametrize(
    "changes", [{"token": "a\r\nX-Evil: 1"}, {"token": ""}, {"device": "\x1b[2J"}, {"task_hash": "00"}]
)
def test_an_answer_that_is_no_enrolment(changes: dict[str, str], make_server: Any, join: Any, tmp_path: Path) -> None:
    server = make_server()
    good = {"device": "d", "token": "t", "slot": 0, "task_hash": server.signed.hash}
    server.enrol = lambda content: httpx.Response(201, json=good | changes)
    with pytest.raises((MalformedMessage, TermsViolated)):
        join(server)
    assert Home(tmp_path / "home").member().state == "joining"


def test_joining_twice_changes_nothing(make_server: Any, join: Any) -> None:
    server = make_server()
    place = join(server)
    before = Home(place).member()
    join(server)
    assert Home(place).member() == before and len(server.devices) == 1 and len(entries(place)) == 1


def test_a_used_invite_is_refused(make_server: Any, join: Any) -> None:
    server = make_server()
    url = server.invite()
    join(server, url=url)
    with pytest.raises(NotAuthorised, match="invite-used"):
        join(server, "another", url=url)


def test_a_revoked_device_can_join_anew_and_its_ledger_goes_on(
    make_server: Any, join: Any, rows: Any, answers: Any
) -> None:
    server = make_server()
    place = join(server)
    key = Home(place).member().secret
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=1)
        server.faults.append(lambda request: answers.refusal(401, "not-authorised"))
        with pytest.raises(NotAuthorised):
            device.run(rows, releases=1)
        assert len(device.ledger.unsettled()) == 1
    server.devices.clear()
    join(server)
    assert Home(place).member().secret != key
    with Device(place, connect=server.connect) as device:
        assert device.releases == 2 and not device.ledger.unsettled(), "what the old device sent is not sent as the new"
        device.run(rows, releases=1)
        assert device.releases == 3 and server.devices[device.member.token] == 1


@pytest.mark.parametrize("restored", [False, True], ids=["", "restored"])
@pytest.mark.parametrize("changes", [(), DEVICE], ids=["sample", "device"])
def test_a_device_that_lost_the_folder_of_a_task_joins_anew_and_its_ledger_goes_on(
    changes: tuple[str, ...], restored: bool, make_server: Any, join: Any, rows: Any
) -> None:
    """The same task under another account would promise every sample, or the device, the same ε once more."""
    server = make_server(*changes)
    place = join(server)
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=2)
    shutil.rmtree(place / "tasks" / "walk")
    if restored:
        server.restore(2, version=1, receipts=1)
    join(server)
    assert [member.account for member in Home(place).members()] == ["walk"]
    if not changes:
        with pytest.raises(TermsViolated, match="nobody can tell how often which row was used"):
            Device(place, connect=server.connect)
        assert renumber(Home(place), Home(place).member()) == 1
    with Device(place, connect=server.connect) as device:
        device.run(rows)
        assert list(device.ledger.chain.tasks) == ["walk"] and device.releases == (9 if changes else 6)


def test_a_task_that_the_ledger_has_closed_is_not_joined_again_by_losing_its_folder(
    make_server: Any, join: Any
) -> None:
    server = make_server()
    home = Home(join(server))
    leave(home, home.member(), server.connect)
    shutil.rmtree(home.path / "tasks" / "walk")
    with pytest.raises(BadInput, match="its ledger is closed for it"):
        join(server)
    assert not server.devices and not home.members()


def test_an_owner_may_choose_a_smaller_epsilon(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    place = join(server, epsilon=2.0)
    assert entries(place)[0]["epsilon"] == "2"
    with Device(place, connect=server.connect) as device:
        assert device.live.plan.noise > 2.5 * server.live.plan.noise
        assert device.live.messages.check_in.header == server.live.messages.check_in.header
        device.run(rows, releases=6)
        assert device.ledger.spent("walk").epsilon <= 2.0
    for epsilon in (0.5, 7.0):
        with pytest.raises(BadInput, match="between 1 and 6"):
            join(server, "other", epsilon=epsilon)
    for changes in (NONE, ("privacy.owner-range=[6.0, 6.0]",)):
        with pytest.raises(BadInput):
            join(make_server(*changes), "other", epsilon=2.0)


def test_the_owners_cap_covers_all_tasks(make_server: Any, join: Any) -> None:
    join(make_server(), cap=(8.0, None))
    with pytest.raises(TermsViolated, match="the owner's cap"):
        join(make_server("name=run"))
    with pytest.raises(TermsViolated, match="the owner's cap"):
        join(make_server("name=swim", *NONE))
    place = join(make_server("name=run"), epsilon=2.0)
    assert [member.task for member in Home(place).members()] == ["run", "walk"], "a refused task leaves no trace"


def test_two_operators_may_use_one_name(make_server: Any, join: Any, rows: Any) -> None:
    first, second = make_server(), make_server()
    place = join(first)
    join(second)
    accounts = [member.account for member in Home(place).members()]
    assert accounts[0] == "walk" and accounts[1].startswith("walk@")
    with Device(place, accounts[1], connect=second.connect) as device:
        device.run(rows, releases=1)
        assert device.ledger.chain.tasks["walk"].releases == 0


def test_other_terms_under_the_same_name_are_refused(make_server: Any, join: Any) -> None:
    server = make_server()
    join(server)
    server.devices.clear()
    server.task = server.task.model_copy(update={"objective": "something else"})
    server.incarnate(1)
    with pytest.raises(TermsViolated, match="not those accepted"):
        join(server)


def test_withdrawing(make_server: Any, join: Any, rows: Any, answers: Any) -> None:
    server = make_server()
    place = join(server)
    with Device(place, connect=server.connect) as device:
        device.run(rows, releases=1)
    home = Home(place)
    assert leave(home, home.member(), server.connect) is True
    assert not server.devices and entries(place)[-1] == {"kind": "close", "task": "walk", "public": 0}
    assert (home.member().state, home.member().token) == ("withdrawn", "")
    with pytest.raises(BadInput, match="has withdrawn"):
        Device(place, connect=server.connect)
    with pytest.raises(BadInput, match="has withdrawn"):
        join(server)


def test_withdrawing_from_a_server_that_forgot(make_server: Any, join: Any) -> None:
    server = make_server()
    home = Home(join(server))
    server.devices.clear()
    assert leave(home, home.member(), server.connect) is False
    assert home.member().state == "withdrawn"


@pytest.mark.parametrize("url", ["", "http://x/", "https://x/join/walk", "ftp://x/join/walk#code=a&key=b&hash=c"])
def test_a_link_that_is_no_invite(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="invite"):
        Device.join(url, tmp_path / "home", accept=lambda offer: True)
