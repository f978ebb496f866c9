"""What a member remembers of the others: their cards, pinned at first sight, and what lasting keys agreed on."""

from __future__ import annotations

from crowdml.core.errors import NotAuthorised
from crowdml.protocol.keys import SigningKey
from crowdml.protocol.sums.secrets import Card, lasting_key, make_card

LARGEST = 100_000
"""Members remembered at most; beyond that all are met anew."""


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
        self._known: dict[int, tuple[Card, bytes]] = {}

    def meet(self, slot: int, card: Card) -> bytes:
        """Return what the two lasting keys agree on; at first sight the card's signature is checked."""
        known = self._known.get(slot)
        if known is not None:
            if known[0] != card:
                raise NotAuthorised(f"member {slot} shows another key than before")
            return known[1]
        card.require(self._task)
        agreed = self._lasting.agree(card.lasting)
        if len(self._known) >= LARGEST:
            self._known.clear()
        self._known[slot] = card, agreed
        return agreed
