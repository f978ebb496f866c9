"""What a member asks of a server before it goes on: a server that cheats must not set weights, nor show rows at will.

The server says who has which piece, and where a group goes on. A member takes its word only where the protocol lets it
say so, and counts what it costs the owner: how often a turn with its rows was begun, and who saw sums of them.
"""

from __future__ import annotations

from collections import Counter

from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.live.controls import Cut, Prepare
from crowdml.slicing.live.group_records import MOST_ATTEMPTS
from crowdml.slicing.live.member_cards import Card
from crowdml.slicing.live.slice_terms import SliceTerms

MOST_SEEN = 2 * MOST_ATTEMPTS
"""Attempts at a turn with one's own rows: a server that was started again counts its own anew."""

MOST_GROUPS = 10
"""Groups that one run of a device lets itself be put into: each sees sums of its rows."""


class MemberGuard:
    """What a member remembers of what it was told.

    Args:
        terms: What the group has agreed on.

    Attributes:
        passes_again: How often a pass began again with the shared weights, though this member knew a cut of it.
        observers: Who was sent sums of this member's rows: identities, or fresh keys where members are hidden.
    """

    def __init__(self, terms: SliceTerms) -> None:
        self._terms = terms
        self.passes_again = self._groups = 0
        self.observers: set[bytes] = set()
        self.change_group()

    def change_group(self) -> None:
        """Begin with a group; raise where a server sends this device from one to another again and again."""
        self._groups += 1
        if self._groups > MOST_GROUPS:
            raise NotAuthorised(f"the server has put this device into more than {MOST_GROUPS} groups")
        self._own_attempts: Counter[int] = Counter()
        self._owners: dict[int, dict[int, bytes]] = {}
        self._newest = (-1, -1)
        self._passes = 0

    def admit(self, message: Prepare, group: int, attempt: int) -> dict[int, Card]:
        """Return the cards that a server shows with an assignment; raise where the protocol allows no such thing.

        Args:
            message: What the server says.
            group: The member's group.
            attempt: The attempt before.
        """
        size = self._terms.size
        if message.attempt <= attempt:
            raise MalformedMessage(f"attempt {message.attempt} after {attempt}: a number is never used twice")
        cards = {int(number): text.card() for number, text in message.cards.items() if number.isdecimal()}
        assignment = message.assignment
        if message.group != group or len(set(assignment)) != len(self._terms.plan.owners) or len(assignment) > size:
            raise MalformedMessage("an assignment that does not fit the pieces of this task")
        if len(cards) != len(message.cards) or not set(assignment) <= set(cards):
            raise MalformedMessage("an assignment to members without cards")
        if not all(1 <= number <= size for number in cards):
            raise NotAuthorised(f"a group of this task has {size} members, and the server shows another one")
        self._require_weights(message)
        return cards

    def begin(self, message: Prepare, cards: dict[int, Card], role: int | None) -> None:
        """Remember an attempt that was admitted; raise where a turn with one's own rows was begun too often."""
        ended = message.cut is not None and message.cut.last and message.cut.turn == message.turn
        if role == DOMINATOR and not ended:
            self._own_attempts[message.turn] += 1
            if self._own_attempts[message.turn] > MOST_SEEN:
                raise NotAuthorised(f"the server has begun turn {message.turn} more than {MOST_SEEN} times")
        cut = message.cut
        if cut is None and self._newest != (-1, -1):
            self.passes_again += 1
        self._newest, self._passes = cut.place if cut else (-1, -1), message.passes
        for forgotten in sorted(self._owners)[:-MOST_SEEN]:
            del self._owners[forgotten]
        owners = zip(self._terms.plan.owners, message.assignment, strict=True)
        self._owners[message.attempt] = {piece: cards[member].fresh for piece, member in owners}

    def note_cut(self, cut: Cut) -> None:
        """A cut holds."""
        self._newest = max(self._newest, cut.place)

    def note_sent(self, card: Card) -> None:
        """Somebody is sent sums of this member's rows."""
        self.observers.add(card.identity or card.fresh)

    def sealer(self, attempt: int, piece: int) -> bytes | None:
        """Return the key of whoever had a piece in an attempt; None where this member was not told."""
        return self._owners.get(attempt, {}).get(piece)

    def _require_weights(self, message: Prepare) -> None:
        """Numbers in clear come on top where a pass begins, and nowhere else: else a server could set any weights."""
        size, cut = self._terms.size, message.cut
        if message.turn // size != message.passes or message.passes < self._passes:
            raise MalformedMessage(f"turn {message.turn} in pass {message.passes} after pass {self._passes}")
        if cut is None and not message.download:
            raise MalformedMessage("a group that begins with no weights at all")
        if cut is not None and cut.place > (message.turn, cut.batch):
            raise MalformedMessage("a cut that is later than the turn that goes on from it")
        if cut is not None and message.download and cut.turn // size >= message.passes:
            raise NotAuthorised("the server wants to set weights in the middle of a pass")
