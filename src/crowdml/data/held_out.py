"""Rows held out to test on, and whose rows they are: numbers of owners, by their names."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from crowdml.core.errors import BadInput

Ints = npt.NDArray[np.int32]

TEST_SHARE = 0.2
"""Share of all rows that is held out where nobody says which rows to test on."""


def hold_out(
    count: int, share: float, owners: Ints | None, seed: int = 0, where: str = "test"
) -> npt.NDArray[np.bool_]:
    """Choose rows to test on by chance, so that every owner keeps a row to learn from.

    >>> int(hold_out(10, 0.3, None).sum()), int(hold_out(4, 0.5, np.array([0, 0, 0, 1]))[3])
    (3, 0)

    Args:
        count: How many rows there are.
        share: How many of them are held out, as a share of all; one at least.
        owners: Whose each row is, numbered from 0.
        seed: Same seed, same rows.
        where: What asks for it, for messages.
    """
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise BadInput(f"{share!r} is no share of the rows", where=where, hint="give one between 0 and 1")
    if count < 2:
        raise BadInput(
            f"{count} row{'s' * (count != 1)}: some to learn from and some to test on are needed", where=where
        )
    wanted = min(max(1, round(share * count)), count - 1)
    order = np.random.default_rng(seed).permutation(np.arange(count, dtype=np.int32))
    if owners is not None:
        kept = np.zeros(count, bool)
        last = np.empty(int(owners.max()) + 1, np.int32)
        last[owners[order]] = order  # of every owner's rows the one that comes last
        kept[last] = True
        order = order[~kept[order]]
        if len(order) < wanted:
            raise BadInput(
                f"{wanted} of {count} rows should be tested on, and {len(last)} owners must keep one each: "
                f"{len(order)} are left",
                where=where,
                hint="a smaller share; or another file with rows to test on",
            )
    held = np.zeros(count, bool)
    held[order[:wanted]] = True
    return held


def held_out_note(held: npt.NDArray[np.bool_]) -> str:
    """Say how many rows are held out, beside results."""
    return f"{int(held.sum())} of {len(held)} rows are held out to test on, drawn by chance"


class OwnerNumbers:
    """Numbers for owners' names, which come in one after the other.

    >>> numbers = OwnerNumbers()
    >>> codes = np.concatenate([numbers.of(["zoe", "bob"]), numbers.of(["zoe"])])
    >>> numbers.by_name(codes).tolist(), numbers.count
    ([1, 0, 1], 2)
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self._known: dict[str, int] = {}

    @property
    def count(self) -> int:
        """How many different owners there are."""
        return len(self._known)

    def of(self, names: Iterable[str]) -> Ints:
        """Return a number for each name, in the order in which they first came."""
        known = self._known
        return np.array([known.setdefault(name, len(known)) for name in names], np.int32)

    def by_name(self, codes: Ints) -> Ints:
        """Number owners by the order of their names instead, which does not depend on that of the rows."""
        place = np.empty(len(self._known), np.int32)
        place[[self._known[name] for name in sorted(self._known)]] = np.arange(len(self._known), dtype=np.int32)
        numbered: Ints = place[codes]
        return numbered
