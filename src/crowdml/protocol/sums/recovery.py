"""Recovery: secrets from shares, and masks from secrets, for many members at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crowdml.core import record
from crowdml.protocol.sums import shamir
from crowdml.protocol.sums.errors import SumAborted
from crowdml.protocol.sums.graph import Graph
from crowdml.protocol.sums.masks import Masks, own_mask_key
from crowdml.protocol.sums.secrets import AgreementKey, digest, mask_key
from crowdml.protocol.sums.terms import SumTerms

TRIES = 8
"""Other choices of shares that are tried where the first gives a wrong secret: somebody gave a wrong share."""


@record
class Lost:
    """A member whose secret is recovered.

    Attributes:
        at: Its number.
        holders: Numbers of the neighbours that have revealed a share.
        shares: Their shares.
        near: Its neighbours that have survived.
    """

    at: int
    holders: list[int]
    shares: list[bytes]
    near: list[int]


class Recovery:
    """Takes masks off a sum.

    Args:
        terms: What is summed.
        graph: Neighbours and threshold.
        context: Name of the attempt.
        fresh: Everybody's fresh public key.
    """

    def __init__(self, terms: SumTerms, graph: Graph, context: bytes, fresh: Sequence[bytes]) -> None:
        """Keep the parts."""
        self._graph, self._context, self._fresh = graph, context, fresh
        self._masks = Masks(terms)

    def remove_own(self, total: Any, alive: Sequence[Lost], commitments: Mapping[int, bytes]) -> None:
        """Take off the survivors' own masks."""

        def right(own: Lost, secret: bytes) -> bool:
            return digest(b"own mask", self._context, secret) == commitments[own.at]

        for secret in self._secrets(alive, right):
            self._masks.subtract(total, own_mask_key(secret, self._context))

    def remove_pairs(self, total: Any, lost: Sequence[Lost]) -> None:
        """Take off what survivors have added for those who were lost after they had shared."""

        def right(own: Lost, secret: bytes) -> bool:
            return AgreementKey(secret).public == self._fresh[own.at]

        for own, secret in zip(lost, self._secrets(lost, right), strict=True):
            key = AgreementKey(secret)
            for other in own.near:
                # The survivor is `other`: it added where its number is the smaller one.
                undo = self._masks.subtract if other < own.at else self._masks.add
                undo(total, self._mask_key(key, own.at, other))

    def _mask_key(self, key: AgreementKey, one: int, other: int) -> bytes:
        return mask_key(key.agree(self._fresh[other]), self._context, min(one, other), max(one, other))

    def _secrets(self, wanted: Sequence[Lost], right: Any) -> list[bytes]:
        """Give all secrets back; whichever does not fit its public mark is tried with other shares."""
        if not wanted:
            return []
        few = [own.at for own in wanted if len(own.shares) < self._graph.threshold]
        if few:
            raise SumAborted(f"{len(few)} members have fewer than {self._graph.threshold} shares: they stay hidden")
        found = self._joined(wanted, 0)
        return [
            secret if secret is not None and right(own, secret) else self._otherwise(own, right)
            for own, secret in zip(wanted, found, strict=True)
        ]

    def _joined(self, wanted: Sequence[Lost], begin: int) -> list[bytes | None]:
        """Join shares, from the `begin`th on, going round."""
        threshold = self._graph.threshold
        picks = [[(begin + at) % len(own.shares) for at in range(threshold)] for own in wanted]
        points = [[own.holders[at] + 1 for at in pick] for own, pick in zip(wanted, picks, strict=True)]
        raw = b"".join(own.shares[at] for own, pick in zip(wanted, picks, strict=True) for at in pick)
        shares = np.frombuffer(raw, "<u4").astype(np.uint64).reshape(len(wanted), threshold, -1)
        return shamir.join(np.array(points, np.uint64), shares)

    def _otherwise(self, own: Lost, right: Any) -> bytes:
        for begin in range(1, min(TRIES, len(own.shares))):
            secret = self._joined([own], begin)[0]
            if secret is not None and right(own, secret):
                return secret
        raise SumAborted("wrong shares were given: the sum cannot be unmasked")
