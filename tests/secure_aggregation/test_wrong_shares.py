"""Members that deal or reveal wrong shares: nobody else pays for it, and everybody knows who it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.core.errors import NotAuthorised
from crowdml.core.keys import SigningKey
from crowdml.secure_aggregation import Sum, SumAborted, WrongMail, shamir
from crowdml.secure_aggregation.member_keys import _PURPOSE, AgreementKey, Card
from crowdml.secure_aggregation.sum_messages import Shares
from crowdml.server.tasks.secure_members import Suspects
from tests.support.rehearsal import Members, Rehearsal

SLOTS = list(range(10))
CHEAT = 4


class Wrongly:
    """Sums of ten in which member 4 cheats, one attempt after the other; whoever is left out takes no part."""

    def __init__(self, make_terms: Any, begin: Any, draw_vectors: Any) -> None:
        self.terms, self._begin, self.suspects = make_terms(10, 7, 1), begin, Suspects()
        self.vectors = draw_vectors(self.terms, SLOTS)
        self.attempts, self.masked = 0, dict.fromkeys(SLOTS, 0)
        self.result: Sum | None = None

    def attempt(self, cheat: Any) -> Rehearsal:
        self.attempts += 1
        slots = [slot for slot in SLOTS if slot not in self.suspects.left_out(0)]
        crowd: Rehearsal = self._begin(self.terms, slots, attempt=self.attempts)
        if CHEAT in slots:
            cheat(crowd.devices[CHEAT])
        failed = True
        try:
            self.result = crowd.run(self.vectors)
            failed = False
        except SumAborted:
            self.result = None
        self.suspects.note(crowd.server, failed)
        for slot in crowd.bodies:
            self.masked[slot] += 1
        return crowd

    @property
    def is_right(self) -> bool:
        found = self.result
        return found is not None and bool((found.total == sum(self.vectors[slot] for slot in found.survivors)).all())


@pytest.fixture
def wrongly(make_terms: Any, begin: Any, draw_vectors: Any) -> Wrongly:
    return Wrongly(make_terms, begin, draw_vectors)


def seals_wrongly(count: int) -> Any:
    """Let a member send shares to so many neighbours that do not fit their marks."""

    def cheat(device: Any) -> None:
        honest = device._parcel

        def parcel(at: int, pair: bytes) -> bytes:
            sealed: bytes = honest(at, pair)
            wrong: bytes = honest(at, bytes(len(pair)))
            return wrong[:-32] + sealed[-32:] if at < count else sealed

        device._parcel = parcel

    return cheat


def deals_wrongly(device: Any) -> None:
    """Let a member deal shares that fit their marks, and are of no secret: nobody can see that beforehand."""
    honest = device.share

    def share() -> Shares:
        found = honest()
        points = np.array(device._neighbours, np.uint64) + np.uint64(1)
        noise = shamir.split((bytes(range(32)), bytes(range(32))), points, device._graph.threshold, device._entropy)
        return Shares(
            commitment=found.commitment,
            parcels=tuple(device._parcel(at, shamir.to_bytes(pair)) for at, pair in enumerate(noise)),
        )

    device.share = share


def reveals_wrongly(device: Any) -> None:
    """Let a member reveal other shares than it holds."""
    honest = device.reveal
    device.reveal = lambda consents: tuple(bytes(36) if share else None for share in honest(consents))


def says_nothing_of_sharers(device: Any) -> None:
    """Let a member send wrong tags over who has shared: its neighbours cannot tell whether it lacks a mask."""
    honest = device.mask
    device.mask = lambda mail, vector: honest(mail, vector)[: device.terms.body_bytes] + bytes(16 * device.near)


def test_wrong_mail_is_found_out_before_anything_is_masked(wrongly: Wrongly) -> None:
    crowd = wrongly.attempt(seals_wrongly(9))
    assert set(crowd.bodies) == {CHEAT}  # nobody else has masked, so nobody else has paid
    assert wrongly.suspects.guilty == {CHEAT}
    wrongly.attempt(seals_wrongly(9))
    assert wrongly.is_right
    assert max(wrongly.masked[slot] for slot in SLOTS if slot != CHEAT) == 1


def test_a_neighbour_with_wrong_mail_says_whom_it_blames(make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    crowd: Rehearsal = begin(make_terms(10, 7, 1), SLOTS)
    seals_wrongly(9)(crowd.devices[CHEAT])
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    with pytest.raises(WrongMail) as caught:
        crowd.devices[0].mask(crowd.server.mail(0), draw_vectors(crowd.terms, SLOTS)[0])
    crowd.server.blame(0, caught.value.accused)
    assert crowd.server.blames == {0: (CHEAT,)}
    assert 0 not in crowd.server.waiting()


def test_one_accusation_where_one_may_be_corrupt_excludes_nobody_for_good(wrongly: Wrongly) -> None:
    """It could be the accuser who lies. The sum comes out without it."""
    wrongly.attempt(seals_wrongly(1))
    assert wrongly.is_right
    assert wrongly.suspects.guilty == set()
    assert not wrongly.suspects.left_out(0)


def test_corrupt_members_of_many_rosters_cannot_have_an_honest_one_left_out(make_terms: Any, begin: Any) -> None:
    """Three of a crowd of thirty are corrupt, one in each roster of ten: together they accuse more than one may."""
    terms, suspects = make_terms(10, 7, 1), Suspects()
    for version, corrupt in enumerate((1, 2, 3)):
        machine = begin(terms, SLOTS, version=version).server
        machine.blames[corrupt] = (CHEAT,)
        suspects.note(machine, failed=False, crowd=30)
    assert not suspects.guilty
    machine = begin(terms, SLOTS, version=3).server
    machine.blames[5] = (CHEAT,)
    suspects.note(machine, failed=False, crowd=30)
    assert suspects.guilty == {CHEAT}  # four accusers of thirty: one of them is honest


def test_more_accusers_in_one_roster_than_may_be_corrupt_in_it_are_proof(make_terms: Any, begin: Any) -> None:
    suspects, machine = Suspects(), begin(make_terms(10, 7, 1), SLOTS).server
    machine.blames |= {1: (CHEAT,), 2: (CHEAT,)}
    suspects.note(machine, failed=False, crowd=30)
    assert suspects.guilty == {CHEAT}


def test_two_who_accuse_each_other_are_both_left_out_after_a_failure(wrongly: Wrongly) -> None:
    crowd = wrongly.attempt(seals_wrongly(1))
    wrongly.suspects.note(crowd.server, failed=True)
    (accuser,) = crowd.server.blames
    assert set(wrongly.suspects.left_out(0)) == {accuser, CHEAT}
    assert not wrongly.suspects.left_out(1)  # at the next version both may try again


def test_the_member_that_reveals_wrong_shares_is_named_and_the_sum_comes_out(wrongly: Wrongly) -> None:
    wrongly.attempt(reveals_wrongly)
    assert wrongly.is_right
    assert wrongly.suspects.guilty == {CHEAT}


def test_a_dealer_whose_shares_give_no_secret_is_named_and_left_out(wrongly: Wrongly) -> None:
    """On the first version such a member made attempt after attempt fail, and all others paid for each."""
    wrongly.attempt(deals_wrongly)
    assert wrongly.result is None
    assert wrongly.suspects.guilty == {CHEAT}
    for _ in range(3):
        wrongly.attempt(deals_wrongly)
        assert wrongly.is_right
    assert max(wrongly.masked.values()) == 4  # once for nothing, then once for each sum


def test_wrong_tags_over_the_sharers_make_an_attempt_fail_once(wrongly: Wrongly) -> None:
    """Neighbours give no share of such a member, and so accuse it; all other secrets they give, and go on."""
    crowd = wrongly.attempt(says_nothing_of_sharers)
    assert wrongly.result is None
    assert set(crowd.server.blames) == set(SLOTS) - {CHEAT}
    assert wrongly.suspects.guilty == {CHEAT}
    wrongly.attempt(says_nothing_of_sharers)
    assert wrongly.is_right
    assert max(wrongly.masked.values()) == 2


def test_a_card_that_others_have_pinned_is_not_exchanged(make_terms: Any, begin: Any) -> None:
    """Everybody would refuse the roster, attempt after attempt."""
    crowd: Rehearsal = begin(make_terms(10, 7, 1), SLOTS)
    crowd.greet()
    again: Rehearsal = begin(make_terms(10, 7, 1), SLOTS, attempt=2)
    hello = again.devices[CHEAT].hello()
    other = replace(hello.card, lasting=AgreementKey(bytes(range(32))).public)
    with pytest.raises(NotAuthorised, match="pinned"):
        again.server.hello(CHEAT, replace(hello, card=other))


def test_a_newcomer_cannot_shut_a_member_out_by_signing_its_lasting_key(make_terms: Any, begin: Any) -> None:
    """Rosters show everybody's lasting key: whoever said hello with another's first would have the other refused."""
    terms, members = make_terms(10, 7, 1), Members("t")
    Rehearsal(terms, members, SLOTS).greet()
    crowd, thief = Rehearsal(terms, members, [*SLOTS[1:], 20], attempt=2), SigningKey.make()
    lasting = members.cards[CHEAT].lasting
    card = Card(identity=thief.public, lasting=lasting, signature=thief.sign(_PURPOSE + b"t\0" + lasting))
    with pytest.raises(NotAuthorised, match="another device's"):
        crowd.server.hello(20, replace(crowd.devices[20].hello(), card=card))
    crowd.server.hello(CHEAT, crowd.devices[CHEAT].hello())


def test_too_many_wrong_shares_give_no_sum_instead_of_a_wrong_one(
    make_terms: Any, begin: Any, draw_vectors: Any
) -> None:
    crowd: Rehearsal = begin(make_terms(10, 7, 1), SLOTS)
    for slot in range(5):
        reveals_wrongly(crowd.devices[slot])
    with pytest.raises(SumAborted, match="stay hidden"):
        crowd.run(draw_vectors(crowd.terms, SLOTS))
    assert crowd.server.guilty == set(range(5))
