"""What a server, a stranger or a corrupt member may try, and what it gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.core.errors import MalformedMessage, NotAuthorised, TermsViolated
from crowdml.core.keys import SigningKey
from crowdml.secure_aggregation import BroadcastHash, LateMessage, Peers, SumAborted, SumDevice, WrongMail
from crowdml.secure_aggregation.masked_vectors import Masks, own_mask_key, unpack
from crowdml.secure_aggregation.member_keys import AgreementKey, mask_key
from crowdml.secure_aggregation.roster import Roster
from crowdml.secure_aggregation.sum_messages import Consents, Hello, Survivors
from tests.support.rehearsal import Rehearsal

SLOTS = [2, 3, 5, 8, 13, 21]
SHOWN = BroadcastHash.of(0, b"")
LOW_ORDER = [bytes(32), (1).to_bytes(32, "little"), (2**255 - 20).to_bytes(32, "little")]


@pytest.fixture
def sums(make_terms: Any, begin: Any) -> Any:
    return lambda lost=None, **more: begin(make_terms(6, 4, 0), SLOTS, lost, **more)


def uploaded(sums: Any, draw_vectors: Any, **lost: Any) -> Rehearsal:
    crowd: Rehearsal = sums(**lost)
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    crowd.upload(draw_vectors(crowd.terms, SLOTS))
    return crowd


# Row 23: shapes, foreign shares, both kinds of share.


def test_a_masked_vector_of_another_modulus_or_length_is_refused(sums: Any, draw_vectors: Any) -> None:
    crowd = sums()
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    body = crowd.devices[2].mask(crowd.server.mail(2), draw_vectors(crowd.terms, SLOTS)[2])
    for wrong in (body[:-4], body + bytes(4), b""):
        with pytest.raises(MalformedMessage):
            crowd.server.masked(2, wrong)
    crowd.server.masked(2, body)


def test_a_share_of_a_member_that_shared_nothing_is_refused(sums: Any, draw_vectors: Any) -> None:
    crowd = uploaded(sums, draw_vectors, lost={21: 2})
    crowd.agree()
    shares = list(crowd.devices[2].reveal(crowd.server.consents(2)))
    assert shares.count(None) == 1  # the neighbour that was lost before it shared
    shares[shares.index(None)] = shares[0] or shares[1]
    with pytest.raises(MalformedMessage, match="shared nothing"):
        crowd.server.reveal(2, tuple(shares))


def test_a_share_that_no_polynomial_has_is_refused(sums: Any, draw_vectors: Any) -> None:
    crowd = uploaded(sums, draw_vectors)
    crowd.agree()
    shares = crowd.devices[2].reveal(crowd.server.consents(2))
    with pytest.raises(MalformedMessage, match="no polynomial"):
        crowd.server.reveal(2, (b"\xff" * 36, *shares[1:]))


def test_a_stranger_and_a_lost_member_have_no_say(sums: Any, draw_vectors: Any) -> None:
    crowd = uploaded(sums, draw_vectors, lost={21: 3})
    crowd.agree()
    for slot in (99, 21):
        with pytest.raises(NotAuthorised):
            crowd.server.reveal(slot, (None,) * 5)
        with pytest.raises(NotAuthorised):
            crowd.server.consents(slot)


def test_a_device_never_gives_both_kinds_of_share(sums: Any, draw_vectors: Any) -> None:
    """The server first says that 21 has survived, then that it is lost: with both answers it could unmask 21."""
    crowd = uploaded(sums, draw_vectors)
    crowd.agree()
    device, first = crowd.devices[2], crowd.devices[2].reveal(crowd.server.consents(2))
    shown = crowd.server.shown_survivors(2)
    other = shown.flags.copy()
    other[SLOTS.index(21)] = False
    with pytest.raises(TermsViolated, match="second set of survivors"):
        device.consent(replace(shown, flags=other))
    assert device.reveal(crowd.server.consents(2)) == first  # and what it gave it gives again, unchanged
    assert device.consent(shown) == crowd.server._consents[2]


def test_shares_are_not_given_before_others_agree(sums: Any, draw_vectors: Any) -> None:
    crowd = uploaded(sums, draw_vectors)
    nobody = Consents(flags=np.zeros(6, bool), tags=b"")
    with pytest.raises(TermsViolated, match="asked for at the stage"):
        crowd.devices[2].reveal(nobody)
    crowd.agree()
    with pytest.raises(SumAborted, match="1 members saw the same survivors, 4 are needed"):
        crowd.devices[2].reveal(nobody)


def test_a_tag_of_another_member_or_of_oneself_vouches_for_nothing(sums: Any, draw_vectors: Any) -> None:
    crowd = uploaded(sums, draw_vectors)
    crowd.agree()
    right = crowd.server.consents(2)
    tags = [right.tags[at : at + 16] for at in range(0, len(right.tags), 16)]
    for wrong in (
        [tags[1]] * 6,  # one member's tag for all
        [crowd.server._consents[2][16 * at : 16 * at + 16] for at in range(6)],  # what this member sent, sent back
        [bytes(16)] * 6,
    ):
        with pytest.raises(SumAborted, match="saw the same"):
            crowd.devices[2].reveal(replace(right, tags=b"".join(wrong)))
    crowd.devices[2].reveal(right)


@pytest.mark.parametrize("case", ["without me", "too few", "never shared"])
def test_survivors_that_would_lay_a_member_bare_are_refused(sums: Any, draw_vectors: Any, case: str) -> None:
    crowd = uploaded(sums, draw_vectors, lost={21: 2})
    shown = crowd.server.shown_survivors(2)
    survivors = shown.flags.copy()
    if case == "without me":
        survivors[0] = False
    elif case == "too few":
        survivors[1:4] = False  # the tags of the others are right
    else:
        survivors[SLOTS.index(21)] = True
    with pytest.raises((TermsViolated, SumAborted)):
        crowd.devices[2].consent(Survivors(flags=survivors, tags=shown.tags))


# Row 24: keys.


@pytest.mark.parametrize("key", LOW_ORDER)
def test_a_key_of_low_order_is_refused(sums: Any, key: bytes) -> None:
    crowd = sums()
    with pytest.raises(MalformedMessage, match="low order"):
        crowd.server.hello(2, replace(crowd.devices[2].hello(), fresh=key))
    with pytest.raises(MalformedMessage, match="low order"):
        AgreementKey(bytes(range(32))).agree(key)


def test_the_same_key_by_two_devices_is_refused(sums: Any) -> None:
    crowd = sums()
    hello = crowd.devices[2].hello()
    crowd.server.hello(2, hello)
    with pytest.raises(MalformedMessage, match="same key"):
        crowd.server.hello(3, replace(crowd.devices[3].hello(), fresh=hello.fresh))


def test_a_key_that_changes_in_a_round_excludes_the_device(sums: Any) -> None:
    crowd = sums()
    hello = crowd.devices[2].hello()
    crowd.server.hello(2, hello)
    crowd.server.hello(2, hello)  # the same again is a resend
    with pytest.raises(NotAuthorised, match="another hello"):
        crowd.server.hello(2, replace(hello, fresh=AgreementKey(bytes(range(32))).public))
    with pytest.raises(NotAuthorised):
        crowd.server.hello(2, hello)
    assert crowd.server.members() == 0


def test_a_card_of_another_identity_or_task_is_refused(sums: Any) -> None:
    crowd = sums()
    stranger = SigningKey.make()
    hello = crowd.devices[2].hello()
    with pytest.raises(NotAuthorised, match="joined"):
        crowd.server.hello(2, hello, stranger.public)
    elsewhere = Peers(stranger, "another task").card
    with pytest.raises(NotAuthorised):
        crowd.server.hello(40, replace(hello, card=elsewhere))


@pytest.mark.parametrize("which", ["fresh", "lasting"])
def test_a_second_encoding_of_a_point_is_refused(sums: Any, which: str) -> None:
    """X25519 ignores the top bit and reduces modulo the prime: the same key could stand in a roster twice."""
    crowd: Rehearsal = sums()
    first, second = crowd.devices[2].hello(), crowd.devices[3].hello()
    crowd.server.hello(2, first)
    key = first.fresh if which == "fresh" else first.card.lasting
    again = key[:31] + bytes([key[31] | 0x80])
    private = AgreementKey(bytes(range(32)))
    assert private.agree(again) == private.agree(key)
    changed = (
        replace(second, fresh=again) if which == "fresh" else replace(second, card=replace(second.card, lasting=again))
    )
    with pytest.raises(MalformedMessage, match="canonical"):
        crowd.server.hello(3, changed)
    with pytest.raises(MalformedMessage, match="canonical"):
        crowd.server.hello(3, replace(second, fresh=(2**255 - 19 + 9).to_bytes(32, "little")))
    roster = introduced(sums())
    wrong = {
        "fresh": replace(roster, fresh=(*roster.fresh[:-1], again)),
        "lasting": replace(roster, cards=(*roster.cards[:-1], replace(roster.cards[-1], lasting=again))),
    }[which]
    device = SumDevice(crowd.terms, 0, 1, 2, *crowd._members.of(2), SHOWN)
    device.hello()
    with pytest.raises(MalformedMessage, match="canonical"):
        device.meet(wrong)


def introduced(crowd: Rehearsal) -> Roster:
    crowd.greet()
    return crowd.server.roster


def test_a_device_notices_a_fresh_key_that_the_server_has_swapped(sums: Any, draw_vectors: Any) -> None:
    """The man in the middle: without the lasting keys it cannot seal shares, and the device masks nothing."""
    crowd: Rehearsal = sums()
    shown = introduced(crowd)
    fresh = list(shown.fresh)
    fresh[SLOTS.index(21)] = AgreementKey(bytes(range(32))).public
    links = {slot: crowd.devices[slot].meet(shown) for slot in SLOTS[1:]}
    links[2] = crowd.devices[2].meet(replace(shown, fresh=tuple(fresh)))
    for slot, link in links.items():
        crowd.server.order(slot, 0, link)
    crowd.server.close_order()
    for slot in SLOTS:
        crowd.devices[slot].settle(crowd.server.links(0))
        crowd.server.shares(slot, crowd.devices[slot].share())
    crowd.server.close_shares()
    with pytest.raises(WrongMail, match="not sealed"):
        crowd.devices[2].mask(crowd.server.mail(2), draw_vectors(crowd.terms, SLOTS)[2])


def test_a_device_refuses_a_card_that_has_changed_and_two_of_one_identity(make_terms: Any) -> None:
    from tests.support.rehearsal import Members

    members = Members("t")
    crowd = Rehearsal(make_terms(6, 4, 0), members, SLOTS)
    crowd.greet()
    crowd.settle()
    stranger = Peers(SigningKey.make(), "t").card
    again = Rehearsal(make_terms(6, 4, 0), members, SLOTS, attempt=2)
    shown = introduced(again)
    again.server.roster = replace(shown, cards=(*shown.cards[:-1], stranger))
    link = again.devices[2].meet(again.server.roster)
    for slot in SLOTS:
        again.server.order(slot, 0, link if slot == 2 else again.devices[slot]._chain.link(0))
    again.server.close_order()
    with pytest.raises(NotAuthorised, match="another key than before"):
        again.devices[2].settle(again.server.links(0))
    third = Rehearsal(make_terms(6, 4, 0), members, SLOTS, attempt=3)
    shown = introduced(third)
    with pytest.raises(NotAuthorised, match="same key or identity"):
        third.devices[2].meet(replace(shown, cards=(*shown.cards[:-1], shown.cards[0])))


@pytest.mark.parametrize("change", [{"version": 9}, {"attempt": 9}])
def test_a_roster_of_another_sum_is_refused(sums: Any, change: Any) -> None:
    crowd: Rehearsal = sums()
    shown = introduced(crowd)
    with pytest.raises(TermsViolated, match="another sum"):
        crowd.devices[2].meet(replace(shown, **change))


def test_a_roster_without_me_or_with_a_key_twice_is_refused(sums: Any) -> None:
    crowd: Rehearsal = sums()
    roster = introduced(crowd)
    for wrong in (
        roster.only([1, 2, 3, 4, 5]),
        replace(roster, fresh=(*roster.fresh[:-1], roster.fresh[1])),
        replace(roster, tips=(*roster.tips[:-1], roster.tips[1])),
        replace(roster, slots=(*roster.slots[:-1], roster.slots[0])),
    ):
        device = SumDevice(crowd.terms, 0, 1, 2, *crowd._members.of(2), SHOWN)
        device.hello()
        with pytest.raises(NotAuthorised):
            device.meet(wrong)


# Mistakes of others that must not come back.


def test_a_late_upload_is_refused_and_stays_masked(sums: Any, draw_vectors: Any) -> None:
    """A server that keeps a late upload can take off the pair masks of its sender, but not its own mask."""
    crowd: Rehearsal = sums(lost={21: 3})
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    vectors = draw_vectors(crowd.terms, SLOTS)
    crowd.upload(vectors)
    late = crowd.devices[21].mask(crowd.server.mail(21), vectors[21])
    with pytest.raises(LateMessage):
        crowd.server.masked(21, late)
    crowd.agree()
    assert crowd.finish().total.tolist() == sum(vectors[slot] for slot in SLOTS[:-1]).tolist()
    # All that the server has learnt of 21: its fresh key, from the shares. So it takes off every pair mask.
    left = unpack(late[: crowd.terms.body_bytes], crowd.terms.size, crowd.terms.bits).astype(np.int64)
    masks = Masks(crowd.terms.size, crowd.terms.bits)
    me, context = SLOTS.index(21), crowd.server._context
    for other in crowd.devices[21]._neighbours:
        agreed = crowd.devices[21]._fresh.agree(crowd.server.roster.fresh[other])
        words = masks.words(mask_key(agreed, context, min(me, other), max(me, other))).astype(np.int64)
        left += words if other < me else -words
    modulus = 1 << crowd.terms.bits
    own_words = masks.words(own_mask_key(crowd.devices[21]._own_mask, context)).astype(np.int64)
    assert ((left - own_words) % modulus).tolist() == (vectors[21] % modulus).tolist()  # only this would open it
    assert (left % modulus).tolist() != (vectors[21] % modulus).tolist()
    assert crowd.devices[21]._own_mask not in [crowd.devices[slot]._own_mask for slot in SLOTS[:-1]]


def test_masks_do_not_cancel_within_a_pair_by_symmetry(sums: Any, draw_vectors: Any) -> None:
    """Both derive the same key, one adds and the other subtracts: if both added, or neither did, the sum were wrong."""
    crowd = uploaded(sums, draw_vectors)
    low, high = crowd.devices[2], crowd.devices[21]
    assert low._neighbours and high._neighbours
    at, back = low._neighbours.index(SLOTS.index(21)), high._neighbours.index(SLOTS.index(2))
    assert low._keys[at] == high._keys[back]
    assert low._me < high._me


def test_no_pad_is_used_twice(sums: Any) -> None:
    """All keys differ: between pairs, between uses, and between attempts, versions and rosters of the same members."""
    keys: list[bytes] = []
    for more in ({}, {"attempt": 2}, {"version": 1}, {"lost": {21: 0}}):
        crowd: Rehearsal = sums(**more)
        crowd.greet()
        crowd.settle()
        crowd.exchange()
        for slot in SLOTS[:5]:
            device = crowd.devices[slot]
            keys += [pair.mask for at, pair in enumerate(device._keys) if device._me < device._neighbours[at]]
            for at, pair in enumerate(device._keys):
                keys += [pair.upward, pair.downward, pair.agreement] if device._me < device._neighbours[at] else []
            keys.append(device._own_mask)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("part", ["context", "pair", "vector"])
def test_the_same_agreement_gives_other_masks_elsewhere(part: str) -> None:
    agreed, context = bytes(range(32)), bytes(32)
    other = {
        "context": mask_key(agreed, bytes(31) + b"1", 1, 2),
        "pair": mask_key(agreed, context, 1, 3),
        "vector": mask_key(agreed, context, 1, 2, vector=1),
    }[part]
    assert other != mask_key(agreed, context, 1, 2)


def test_every_message_counts_once(sums: Any, draw_vectors: Any) -> None:
    crowd = uploaded(sums, draw_vectors)
    body = crowd.bodies[2]
    crowd.server.masked(2, body)
    with pytest.raises(MalformedMessage, match="another masked"):
        crowd.server.masked(2, crowd.bodies[3])
    crowd.agree()
    assert crowd.finish().total.tolist() == sum(draw_vectors(crowd.terms, SLOTS).values()).tolist()
    with pytest.raises(SumAborted):
        crowd.server.finish()


def test_every_step_of_a_device_is_taken_once(sums: Any, draw_vectors: Any) -> None:
    crowd = uploaded(sums, draw_vectors)
    with pytest.raises(TermsViolated, match="taken once"):
        crowd.devices[2].mask(crowd.server.mail(2), draw_vectors(crowd.terms, SLOTS)[2])
    with pytest.raises(TermsViolated, match="taken once"):
        crowd.devices[2].hello()


def test_no_more_than_the_invited_are_taken_in(sums: Any) -> None:
    crowd: Rehearsal = sums()
    for slot in SLOTS:
        crowd.server.hello(slot, crowd.devices[slot].hello())
    extra = SumDevice(crowd.terms, 0, 1, 34, *crowd._members.of(34), SHOWN)
    hello: Hello = extra.hello()
    with pytest.raises(LateMessage, match="already"):
        crowd.server.hello(34, hello)
