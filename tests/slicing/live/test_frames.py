"""Frames: what is altered, replayed, out of order, cut off or from elsewhere is refused, and named."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.core.keys import SigningKey
from crowdml.slicing.live.deposits import open_deposit, seal_deposit
from crowdml.slicing.live.member_cards import Card, Channels, MemberKeys, context_of
from crowdml.slicing.live.slice_frames import (
    DEPOSIT,
    FORWARD,
    HEADER_BYTES,
    VERSION,
    Header,
    attempt_number,
    read_header,
)
from crowdml.slicing.live.slice_terms import SharedNumbers
from tests.support.frame_fuzz import SLOW_S, fuzz

TASK = "ab" * 32
IDENTITIES = [SigningKey.make() for _ in range(4)]


def keys(number: int) -> MemberKeys:
    return MemberKeys(TASK, os.urandom(32), IDENTITIES[number])


def header(**changes: int) -> Header:
    usual = Header(VERSION, FORWARD, 0, 0, 1, 0, 5, 0, 0, 1, 2, 1, 2, 0, 0)
    return usual._replace(**changes)


class Pair:
    """Two members, and a third whose card both know."""

    def __init__(self, context: bytes = b"told", other: bytes = b"told") -> None:
        self.one, self.two, self.three = keys(1), keys(2), keys(3)
        cards = {1: self.one.card, 2: self.two.card, 3: self.three.card}
        for number, each in enumerate((self.one, self.two, self.three), start=1):
            each.meet(cards, number)
        self.sends = Channels(self.one, 1, cards, context_of([context]))
        self.takes = Channels(self.two, 2, cards, context_of([other]))

    def open(self, frame: bytes) -> bytes:
        return self.takes.open(read_header(frame), frame)


def test_frames_come_one_after_the_other() -> None:
    pair = Pair()
    frames = [pair.sends.seal(header(batch=batch), b"%d" % batch) for batch in range(3)]
    assert [pair.open(frame) for frame in frames] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (lambda frames: [frames[0], frames[0]], "frame 0 of member 1 was here before: 1 is next"),
        (lambda frames: [frames[1]], "frame 1 of member 1 comes too early: 0 is next"),
        (lambda frames: [frames[0][:-1] + bytes([frames[0][-1] ^ 1])], "frame 0 of member 1 was altered"),
        (lambda frames: [frames[0][:-5]], "frame 0 of member 1 was altered"),
        (lambda frames: [frames[0][:HEADER_BYTES]], "frame 0 of member 1 was altered"),
        (lambda frames: [frames[0][:20]], "shorter than its header"),
        (lambda frames: [frames[0][:16] + b"\7" + frames[0][17:]], "altered"),
    ],
    ids=["replayed", "reordered", "altered", "truncated", "empty", "no header", "header altered"],
)
def test_a_frame_that_cannot_be_is_named(harm: object, named: str) -> None:
    pair = Pair()
    frames = [pair.sends.seal(header(batch=batch), b"numbers") for batch in range(2)]
    with pytest.raises(MalformedMessage, match=named):
        for frame in harm(frames):  # type: ignore[operator]
            pair.open(frame)


def test_a_frame_of_another_member_cannot_pass_for_ones_own() -> None:
    pair = Pair()
    cards = {1: pair.one.card, 2: pair.two.card, 3: pair.three.card}
    foreign = Channels(pair.three, 3, cards, context_of([b"told"])).seal(header(sender=3), b"numbers")
    forged = header(sender=1).pack() + foreign[HEADER_BYTES:]
    with pytest.raises(MalformedMessage, match="altered"):
        pair.open(forged)


def test_members_that_were_told_different_things_cannot_talk() -> None:
    pair = Pair(other=b"told something else")
    with pytest.raises(MalformedMessage, match="altered"):
        pair.open(pair.sends.seal(header(), b"numbers"))


def test_cards_are_signed_for_one_task_and_identities_are_pinned() -> None:
    one, two = keys(1), keys(2)
    one.meet({1: one.card, 2: two.card}, 1)
    again = keys(3)
    with pytest.raises(NotAuthorised, match="member 2 shows another identity"):
        one.meet({1: one.card, 2: again.card}, 1)
    elsewhere = MemberKeys("cd" * 32, os.urandom(32), IDENTITIES[2])
    with pytest.raises(NotAuthorised):
        keys(1).meet({1: one.card, 2: elsewhere.card}, 1)
    with pytest.raises(NotAuthorised, match="another card of member 1"):
        one.meet({1: again.card, 2: two.card}, 1)
    with pytest.raises(NotAuthorised, match="the same key"):
        one.meet({1: one.card, 2: two.card, 3: two.card}, 1)
    with pytest.raises(MalformedMessage, match="low order"):
        hidden = MemberKeys(TASK, os.urandom(32), None)
        hidden.meet({1: hidden.card, 2: Card(fresh=bytes(32))}, 1)


def test_a_deposit_is_opened_by_those_it_was_sealed_for_alone() -> None:
    pair = Pair()
    frame = seal_deposit(pair.one, header(kind=DEPOSIT), [pair.two.card.fresh], b"a piece", os.urandom(48))
    assert open_deposit(pair.two, frame, pair.one.card.fresh) == b"a piece"
    with pytest.raises(MalformedMessage, match="somebody else has sealed"):
        open_deposit(pair.two, frame, pair.three.card.fresh)
    with pytest.raises(MalformedMessage, match="not sealed for this member"):
        open_deposit(pair.three, frame, None)
    for at in range(0, len(frame), 7):
        with pytest.raises((MalformedMessage, NotAuthorised)):
            open_deposit(pair.two, frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :], None)
        with pytest.raises((MalformedMessage, NotAuthorised)):
            open_deposit(pair.two, frame[:at], None)


def test_numbers_of_attempts_never_meet() -> None:
    assert attempt_number(1, 0) > attempt_number(0, 65535)
    for wrong in ((0, 65536), (65536, 0), (0, -1)):
        with pytest.raises(ValueError, match="each is below"):
            attempt_number(*wrong)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        struct.pack("<I", 1),
        struct.pack("<I", 1 << 31),
        struct.pack("<IIf", 1, 9, 1.0),
        struct.pack("<IIf", 1, 2, float("nan")),
        struct.pack("<IIIff", 2, 2, 2, 1.0, 1.0),
        struct.pack("<IIIff", 2, 3, 2, 1.0, 1.0),
    ],
)
def test_numbers_in_clear_are_looked_at(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        SharedNumbers.read(body, np.array([1, 2, 3]))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_refused(raw: bytes) -> None:
    try:
        found = read_header(raw)
    except MalformedMessage:
        return
    assert found.pack() == raw[:HEADER_BYTES]


def test_the_parser_survives_what_is_nearly_a_frame() -> None:
    met, slowest = fuzz(20_000, np.random.default_rng(0))
    assert met["a header"] and met["refused"] and met["a header"] + met["refused"] == 20_000
    assert met["a body refused"] and slowest < SLOW_S


def test_a_known_key_under_another_identity_is_not_that_identity() -> None:
    """A server and member 2 together must not pass its key off as that of somebody whom others trust."""
    one, two = keys(1), keys(2)
    one.meet({1: one.card, 2: two.card}, 1)
    forged = Card(fresh=two.card.fresh, identity=IDENTITIES[3].public, signature=bytes(64))
    with pytest.raises(NotAuthorised):
        one.meet({1: one.card, 3: forged}, 1)
    with pytest.raises(NotAuthorised, match="another card of member 1"):
        one.meet({1: Card(fresh=one.card.fresh, identity=IDENTITIES[3].public), 2: two.card}, 1)
    one.meet({1: one.card, 2: two.card}, 1)
