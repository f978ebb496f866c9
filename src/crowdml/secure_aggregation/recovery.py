"""Recovery: secrets from shares, and masks from secrets, for many members at once.

Only shares that fit their public marks come here, so if they give a wrong secret it is their dealer's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crowdml.core import record
from crowdml.secure_aggregation import shamir
from crowdml.secure_aggregation.commitments import digest
from crowdml.secure_aggregation.graph import Graph
from crowdml.secure_aggregation.masked_vectors import Masks, own_mask_key
from crowdml.secure_aggregation.member_keys import AgreementKey, mask_key
from crowdml.secure_aggregation.stages import SumAborted
from crowdml.secure_aggregation.sum_terms import SumTerms


@record
class Secret:
    """A member's secret that is recovered.

    Attributes:
        at: The member's number.
        holders: Numbers of the neighbours that have revealed a share.
        shares: Their shares.
        near: The member's neighbours that have survived.
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

    Attributes:
        guilty: Numbers of members that have dealt wrong shares.
    """

    def __init__(self, terms: SumTerms, graph: Graph, context: bytes, fresh: Sequence[bytes]) -> None:
        self._graph, self._context, self._fresh = graph, context, fresh
        self._masks = Masks(terms.size, terms.bits)
        self.guilty: list[int] = []

    def remove_own_masks(self, total: Any, alive: Sequence[Secret], commitments: Mapping[int, bytes]) -> None:
        """Take off the survivors' own masks."""

        def right(wanted: Secret, secret: bytes) -> bool:
            return digest(b"own mask", self._context, secret) == commitments[wanted.at]

        for secret in self._secrets(alive, right):
            self._masks.subtract(total, own_mask_key(secret, self._context))

    def remove_pair_masks(self, total: Any, lost: Sequence[Secret]) -> None:
        """Take off what survivors have added for those who were lost after they had shared."""

        def right(wanted: Secret, secret: bytes) -> bool:
            return AgreementKey(secret).public == self._fresh[wanted.at]

        for wanted, secret in zip(lost, self._secrets(lost, right), strict=True):
            key = AgreementKey(secret)
            for other in wanted.near:
                # The survivor is `other`: it added where its number is the smaller one.
                undo = self._masks.subtract if other < wanted.at else self._masks.add
                undo(total, self._mask_key(key, wanted.at, other))

    def _mask_key(self, key: AgreementKey, one: int, other: int) -> bytes:
        return mask_key(key.agree(self._fresh[other]), self._context, min(one, other), max(one, other))

    def _secrets(self, wanted: Sequence[Secret], right: Callable[[Secret, bytes], bool]) -> list[bytes]:
        """Give all secrets back, or say who has dealt wrong shares."""
        if not wanted:
            return []
        few = [each.at for each in wanted if len(each.shares) < self._graph.threshold]
        if few:
            raise SumAborted(f"{len(few)} members have fewer than {self._graph.threshold} shares: they stay hidden")
        found = [
            secret if secret is not None and right(each, secret) else None
            for each, secret in zip(wanted, self._joined(wanted), strict=True)
        ]
        self.guilty += [each.at for each, secret in zip(wanted, found, strict=True) if secret is None]
        if self.guilty:
            raise SumAborted(f"{len(self.guilty)} members dealt wrong shares: the sum cannot be unmasked")
        return [secret for secret in found if secret is not None]

    def _joined(self, wanted: Sequence[Secret]) -> list[bytes | None]:
        """Join as many shares of each as its threshold."""
        threshold = self._graph.threshold
        points = [[holder + 1 for holder in each.holders[:threshold]] for each in wanted]
        raw = b"".join(share for each in wanted for share in each.shares[:threshold])
        shares = np.frombuffer(raw, "<u4").astype(np.uint64).reshape(len(wanted), threshold, -1)
        return shamir.join(np.array(points, np.uint64), shares)
