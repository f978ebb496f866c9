"""Spending: how often each sample was used in one task, what that costs, and what the task counts for.

Against the owner's cap an open task counts with its whole promise (ε, δ). One that has ended in public counts with
less, if fewer releases were made than its terms allow. How much less is not what the ledger says was *spent*: a server
sees every release and may end a task just when the device had bad luck, and "ε after k releases at δ" holds for a k
that was fixed before, not for one that was chosen by what came out. (Added up over many releases, such a server makes δ
several times too large; a test works it out.) What can be proven:

Let x_i be how far the privacy loss L_i of task i passes what it counts for, r_i. If Σr_i ≤ ε on every course of
events,

    δ ≤ E[1 - e^-(Σx_i)⁺] ≤ Σ E[1 - e^-(x_i⁺)],                     since 1 - Πa ≤ Σ(1 - a) for a in [0, 1]

so tasks add up, however they interleave and whoever chooses them, if each E[1 - e^-(x_i⁺)] is at most the δ it counts
for; L_i is the sum over its own releases, and its moments, taken release by release given all that came before, are
those of `accounting`. Let K be the number of releases at the end. It is known to whoever sees them, and so is r_i:

- No release: nothing was said, and the sums may begin with the first release. The task counts for nothing.
- Pure releases: L_i ≤ K·ε₀ on every course of events, so x_i = 0 for r_i = K·ε₀.
- Gaussian releases: marks are set beforehand, at a sixteenth, an eighth, a quarter and a half of all uses. Up to the
  mark at k releases the loss passes ε_k, the ε of k releases at δ/4, by no more than δ/4 in all, wherever the end is
  chosen before it: moments up to such an end are at most those of k releases, and the loss is no worse than that of
  one Gaussian release of that strength (`privacy.gaussian`). A task whose end comes before a mark
  counts with the ε of the first mark that it did not pass, otherwise with the whole. The four marks and the whole
  promise pass what they count for by 4·δ/4 + δ = 2δ together. So such a task counts with 2δ from the beginning, and
  goes on doing so: δ that was given back after a release could be spent again and again by ending tasks that went
  well.

For samples, K is the number of the device's releases, and no sample was in more. How often the most used sample
really was used depends on the rows, and a cap that went by it would tell.

Whether there is anything to free must not depend on the rows either: the end must be public, announced by the server
(its operator stopped the task, all versions are made, the error that it estimates from noisy counts fell: all of it
is computed from what devices have released) or reached by the number of releases in the terms. A server that
announces an end to one device alone, or too early, acts on what it has seen, which the argument allows for. A device
that stops for a reason of its own (its owner withdrew) frees nothing. Nothing can be charged to a closed task.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.privacy.accounting import Event, Filter
from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.privacy.odds import Odds, odds_after
from crowdml.privacy.promise import Promise

MOST = 1 << 31
"""Samples are numbers below this: the chain hashes them as 32-bit integers."""
MARKS = (16, 8, 4, 2)
"""Parts of all uses at which marks are set."""


@record
class Numbering:
    """Which sample has which number, as a hash: whoever lost some of it cannot pass for whoever has it all.

    Attributes:
        count: How many samples have a number.
        hash: Over all of them in the order of their numbers, in hexadecimal.
    """

    count: int
    hash: str


class UsesState:
    """Counts by sample. Releases are added as packed numbers and counted when somebody asks: reading many is quick.

    >>> uses = UsesState()
    >>> uses.add(packed(np.array([0, 2])))
    >>> uses.add(packed(np.array([2])))
    >>> uses.most(), uses.of(np.array([0, 7]))
    (2, 1)
    >>> uses.forget()
    >>> uses.of(np.array([7]))
    2

    Attributes:
        floor: Uses that every sample counts with, whatever its number.
    """

    def __init__(self) -> None:
        """Begin with nothing used."""
        self.floor = 0
        self._counts = np.zeros(0, np.int64)
        self._waiting: list[bytes] = []

    def add(self, numbers: bytes) -> None:
        """Add one release."""
        if numbers:
            self._waiting.append(numbers)

    def most(self) -> int:
        """Return the uses of the most used sample."""
        return self.floor + int(self.counts().max(initial=0))

    def of(self, samples: npt.NDArray[Any]) -> int:
        """Return the uses of the most used of these samples."""
        return int(self.each(samples).max(initial=0))

    def each(self, samples: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the uses of each of these samples."""
        counts = self.counts()
        found = np.full(len(samples), self.floor, np.int64)
        known = samples < len(counts)
        found[known] += counts[samples[known]]
        return found

    def forget(self) -> None:
        """Forget which sample has which number: from now on any may be the most used one, and counts as such."""
        self.floor, self._counts = self.most(), np.zeros(0, np.int64)

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the uses of every sample above the floor, by its number; those beyond the end have none."""
        if self._waiting:
            numbers = np.frombuffer(b"".join(self._waiting), "<i4")
            self._waiting.clear()
            if len(numbers) < len(self._counts) // 8 and numbers.max() < len(self._counts):
                np.add.at(self._counts, numbers, 1)
                return self._counts
            more = np.bincount(numbers, minlength=len(self._counts))
            more[: len(self._counts)] += self._counts
            self._counts = more
        return self._counts


def packed(samples: npt.NDArray[Any]) -> bytes:
    """Write numbers of samples as the chain hashes them: little-endian, 32 bits each."""
    return np.asarray(samples).astype("<i4").tobytes()


@dataclasses.dataclass(kw_only=True)
class SpendingState:
    """What one task has spent so far. It changes in place: a ledger of ten thousand releases is read in a moment.

    Attributes:
        terms: As accepted.
        task_hash: Names the signed task.
        uses: How often each sample was used, by its number on this device.
        numbering: Which sample has which number, as of the last charge that says so.
        releases: Charges so far.
        charged: Uses that these count for; as many, where each counts for one.
        widest: Most samples in one release.
        closed: Whether the task has ended.
        freed: Whether it ended in public, so that what was never released need not count.
    """

    terms: AcceptedTerms
    task_hash: str
    uses: UsesState = dataclasses.field(default_factory=UsesState)
    numbering: Numbering | None = None
    releases: int = 0
    charged: int = 0
    widest: int = 0
    closed: bool = False
    freed: bool = False

    def spent(self) -> Event:
        """Cost for the unit that is worst off."""
        count = self.charged if self.terms.unit == "device" else self.uses.most()
        return self.terms.event.times(count)

    def of_device(self) -> Event:
        """Cost for the device as a whole."""
        if self.terms.device:
            return self.terms.device.times(self.charged)
        total = self.terms.event.times(self.charged)
        return total if self.terms.unit == "device" else total.grouped(self.widest)

    def odds(self) -> Odds:
        """How often the best guess about the unit that is worst off is right, after all releases so far."""
        return odds_after(self.terms.event, self.charged if self.terms.unit == "device" else self.uses.most())

    def odds_of_device(self) -> Odds:
        """The same for the device as a whole."""
        if self.terms.device:
            return odds_after(self.terms.device, self.charged)
        event = self.terms.event
        return odds_after(event if self.terms.unit == "device" else event.grouped(max(1, self.widest)), self.charged)

    def reserved(self) -> Promise:
        """What counts against the owner's cap: the whole promise, or less once the task ended in public."""
        if self.freed:
            return counted_after(self.terms.filter, self.terms.event, self.terms.uses, self.charged)
        return counted(self.terms.filter)


def counted(limit: Filter) -> Promise:
    """Return what a task counts for while it is open."""
    return Promise(epsilon=limit.epsilon, delta=limit.delta if limit.kind == "pure" else 2 * limit.delta)


def counted_after(limit: Filter, event: Event, uses: int, made: int) -> Promise:
    """Return what a task counts for that has ended in public.

    Args:
        limit: Its promise, and the sum that enforced it.
        event: What one use costs.
        uses: Uses that its terms allow.
        made: Uses that the device's releases count for, whoever was in them.

    >>> counted_after(Filter(kind="pure", epsilon=2.0, delta=0.0), Event.of_pure(0.5), 4, 1)
    Promise(epsilon=0.5, delta=0.0)
    """
    if made == 0:
        return Promise(epsilon=0.0)
    whole = counted(limit)
    possible = [whole.epsilon, event.times(made).pure]
    if limit.kind != "pure":
        passed = [uses // part for part in MARKS if uses // part >= made]
        possible += [event.times(mark).promise(limit.delta / len(MARKS)).epsilon for mark in passed]
    return Promise(epsilon=min(possible), delta=whole.delta)
