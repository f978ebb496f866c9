"""The order of the circle: nobody can choose it, and a server that dislikes it has few other tries."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from crowdml.core.errors import MalformedMessage, NotAuthorised, TermsViolated
from crowdml.secure_aggregation import LateMessage, SumAborted
from crowdml.secure_aggregation.commitments import LAYERS, Chain, is_link, seed_of
from tests.support.cheating import forget
from tests.support.rehearsal import Rehearsal

SLOTS = list(range(10))


@pytest.fixture
def crowd(make_terms: Any, begin: Any) -> Rehearsal:
    found: Rehearsal = begin(make_terms(10, 7, 1), SLOTS)
    found.greet()
    return found


def test_a_link_opens_its_own_layer_only() -> None:
    chain = Chain(os.urandom)
    for layer in range(LAYERS):
        assert [is_link(chain.link(layer), other, chain.tip) for other in range(LAYERS)] == [
            other == layer for other in range(LAYERS)
        ]


def test_everybody_has_a_part_in_the_seed(crowd: Rehearsal) -> None:
    links = [crowd.devices[slot].meet(crowd.server.roster) for slot in SLOTS]
    context = crowd.server.roster.context(crowd.terms, 0)
    for at in SLOTS:
        assert seed_of(context, [*links[:at], bytes(32), *links[at + 1 :]]) != seed_of(context, links)


@pytest.mark.parametrize("rule", [True, False])
def test_a_server_cannot_grind_for_an_order_that_suits_it(rule: bool, crowd: Rehearsal, monkeypatch: Any) -> None:
    """After it has seen all links, the server changes the link of a member of its own until the order is to its taste.

    Without the rule it goes on until a member of its choice is the victim's next: on the first version it took
    microseconds a try, with the roster's keys.
    """
    if not rule:
        forget(monkeypatch, "require_links")
    links = [crowd.devices[slot].meet(crowd.server.roster) for slot in SLOTS]
    for slot in SLOTS:
        crowd.server.order(slot, 0, links[slot])
    crowd.server.close_order()
    links[9] = os.urandom(32)
    if rule:
        with pytest.raises(TermsViolated, match="committed itself to"):
            crowd.devices[0].settle(tuple(links))
    else:
        assert crowd.devices[0].settle(tuple(links)) is None


def test_whoever_does_not_open_leaves_and_the_others_open_once_more(crowd: Rehearsal) -> None:
    crowd.lost = {4: 1}
    crowd.settle()
    assert crowd.server.roster.slots == (0, 1, 2, 3, 5, 6, 7, 8, 9)
    assert crowd.server._layer == 1
    assert {device._context for slot, device in crowd.devices.items() if slot != 4} == {crowd.server._context}


def test_a_link_is_opened_for_one_roster_only(crowd: Rehearsal) -> None:
    """Once it has opened, a device takes no other roster, and the next layer is for those who are left alone."""
    device, roster = crowd.devices[0], crowd.server.roster
    first = device.meet(roster)
    with pytest.raises(TermsViolated, match="taken once"):
        device.meet(replace(roster, fresh=roster.fresh[::-1]))
    links = [first, *(crowd.devices[slot].meet(roster) for slot in SLOTS[1:])]
    second = device.settle((*links[:9], None))
    assert second != first
    assert device.members == 9
    with pytest.raises(TermsViolated, match="committed itself to"):  # the first layer's links are of no use any more
        device.settle(tuple(links[:9]))


def test_a_server_has_as_many_tries_as_a_chain_has_links(make_terms: Any, begin: Any) -> None:
    """Calling one member silent after another: at the end the device gives up, with nothing given away."""
    crowd: Rehearsal = begin(make_terms(20, 11), list(range(20)))
    crowd.greet()
    device, opened = crowd.devices[0], 1
    device.meet(crowd.server.roster)
    with pytest.raises(SumAborted, match=f"after {LAYERS} tries"):
        for members in range(20, 0, -1):
            device.settle((*[bytes(32)] * (members - 1), None))
            opened += 1
    assert opened == LAYERS


def test_a_roster_that_shrinks_below_the_least_number_ends_the_sum(crowd: Rehearsal) -> None:
    device = crowd.devices[0]
    device.meet(crowd.server.roster)
    with pytest.raises(SumAborted, match="6 members, where 7 to 10 may be"):
        device.settle((*[bytes(32)] * 6, *[None] * 4))


def test_a_member_that_has_opened_cannot_be_left_out_in_silence(crowd: Rehearsal) -> None:
    device = crowd.devices[0]
    device.meet(crowd.server.roster)
    with pytest.raises(NotAuthorised, match="left out all the same"):
        device.settle((None, *[bytes(32)] * 9))


def test_a_server_refuses_a_wrong_link_and_one_that_comes_late(crowd: Rehearsal) -> None:
    with pytest.raises(MalformedMessage, match="committed itself to"):
        crowd.server.order(0, 0, bytes(32))
    crowd.lost = {4: 1}
    crowd.settle()
    with pytest.raises(LateMessage):
        crowd.server.order(3, 0, crowd.devices[3]._chain.link(0))
    with pytest.raises(NotAuthorised):
        crowd.server.order(4, 0, crowd.devices[4]._chain.link(0))
