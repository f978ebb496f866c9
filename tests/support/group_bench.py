"""A group whose messages a test hands over by itself: what the server says is delivered, numbers of members wait."""

from __future__ import annotations

import os

import numpy as np

from crowdml.models import flatten
from crowdml.slicing.live.controls import Complain, OfMember, Stalled
from crowdml.slicing.live.group_machine import Group, Out
from crowdml.slicing.live.group_records import GroupStart
from crowdml.slicing.live.member_cards import Card
from crowdml.slicing.live.member_machine import Member
from crowdml.slicing.live.slice_frames import BETWEEN_MEMBERS, read_header
from crowdml.slicing.live.slice_terms import SharedNumbers, SliceTerms
from tests.support.group_courses import FIRST, IDENTITIES, SIZE, TERMS, order_of, rows_of


def new_group(terms: SliceTerms = TERMS, incarnation: int = 1, number: int = 1) -> Group:
    """Make the machine of a server that has just started."""
    first = SharedNumbers.every(flatten(FIRST).astype(np.float32))
    start = GroupStart(
        number=number, size=SIZE, secret=b"s" * 16, incarnation=incarnation, passes=0, first=first, download=first
    )
    return Group(terms, start)


class GroupBench:
    """A server and its members, running.

    Attributes:
        group: The machine of the server.
        members: Those of the members.
        between: Frames between members that nobody has delivered yet.
    """

    def __init__(self, terms: SliceTerms = TERMS) -> None:
        self.group = new_group(terms)
        self.members = {
            number: Member(terms, *rows_of(number), order_of(number), IDENTITIES[number], os.urandom)
            for number in range(1, SIZE + 1)
        }
        self.between: list[bytes] = []
        for number in self.members:
            self.deliver(self.group.joined(number, self.card(number)))

    def stalled(self, *waits_for: int) -> Stalled:
        """Say, as a member, whom it waits for."""
        return Stalled(turn=self.group.turn, attempt=self.group.attempt, waits_for=waits_for)

    def complaint(self, about: int) -> Complain:
        """Say, as a member, that somebody sent what cannot be."""
        return Complain(turn=self.group.turn, attempt=self.group.attempt, about=about, why="altered")

    def card(self, number: int) -> Card:
        """Return a member's card."""
        hello = self.members[number].hello()[0]
        assert not isinstance(hello, bytes) and hello.kind == "hello"
        return hello.card.card()

    def deposits(self, number: int) -> list[bytes]:
        """Return the deposits that a member would show again."""
        return [each for each in self.members[number].hello()[1:] if isinstance(each, bytes)]

    def deliver(self, out: Out) -> None:
        """Hand over what the server says, and what members answer to it."""
        for number, message in out:
            self.said(number, self.members[number].handle(message))

    def said(self, number: int, answers: list[OfMember | bytes]) -> None:
        """Take what a member says: to the server at once, to others when a test says so."""
        for answer in answers:
            if isinstance(answer, bytes) and read_header(answer).kind in BETWEEN_MEMBERS:
                self.between.append(answer)
            else:
                self.deliver(self.group.handle(number, answer))

    def pass_on(self) -> None:
        """Hand over the oldest frame between members."""
        frame = self.between.pop(0)
        header = read_header(frame)
        if header.fence == (self.group.turn, self.group.attempt):
            self.said(header.receiver, self.members[header.receiver].handle(frame))

    def run_to_a_cut(self) -> None:
        """Go on until a cut holds that has batches in it."""
        while self.group.cut is None or not self.group.cut.batch:
            self.pass_on()
