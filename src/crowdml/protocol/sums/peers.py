"""What a member remembers of the others: their cards, pinned at first sight, and what lasting keys agreed on."""

from __future__ import annotations

from crowdml.core import record
from crowdml.core.errors import NotAuthorised
from crowdml.protocol.keys import SigningKey
from crowdml.protocol.sums.secrets import Card, derive, lasting_key, make_card

LARGEST = 100_000
"""Members remembered at most; beyond that all are met anew."""


@record
class Peer:
    """Another member.

    Attributes:
        card: What it showed.
        agreed: What the two lasting keys agree on.
        vouching: Key under which the two tell each other what the server showed them, in every sum of the task.
    """

    card: Card
    agreed: bytes
    vouching: bytes


class Peers:
    """Cards that were checked once. A slot that shows another card later is refused.

    Args:
        identity: The member's own signing key.
        task: Name of the task.
    """

    def __init__(self, identity: SigningKey, task: str) -> None:
        """Know nobody but oneself."""
        self.own = make_card(identity, task)
        self._lasting, self._task = lasting_key(identity, task), task
        self._known: dict[int, Peer] = {}

    def meet(self, slot: int, card: Card) -> Peer:
        """Return what is known of a member; at first sight its card's signature is checked."""
        known = self._known.get(slot)
        if known is not None:
            if known.card != card:
                raise NotAuthorised(f"member {slot} shows another key than before")
            return known
        card.require(self._task)
        agreed = self._lasting.agree(card.lasting)
        if len(self._known) >= LARGEST:
            self._known.clear()
        self._known[slot] = Peer(card=card, agreed=agreed, vouching=derive(agreed, b"vouching\0" + self._task.encode()))
        return self._known[slot]
