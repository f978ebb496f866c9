"""The ledger: an append-only, hash-chained record of what a device has promised and spent, across tasks.

This is the pure part: `LedgerChain` takes entries and refuses what the terms or the owner's cap do not cover; where
entries are kept is a driver's business, and `entries` says what they are.

A closed task counts against the owner's cap with less than its whole promise only if its end was public: `spending`
says with how much, and why. Nothing is charged to it any more.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import BudgetExhausted, CapReached, TermsViolated
from crowdml.privacy.accounting import sum_up
from crowdml.privacy.ledger.entries import AcceptedTerms, Entry, accepted, terms_of
from crowdml.privacy.ledger.entry_bytes import canonical, read_entry
from crowdml.privacy.ledger.spending import MOST, Numbering, SpendingState, counted, packed
from crowdml.privacy.promise import Promise

START = bytes(32)
"""The hash before the first entry."""


@record
class Cap:
    """The owner's limit over all tasks; ε and δ of tasks add up. No cap is an infinite one."""

    epsilon: float = math.inf
    delta: float = 1.0


class LedgerChain:
    """The state of a ledger: the hash of its last entry, and what every task has spent.

    >>> from crowdml.privacy.accounting import Event, Filter
    >>> terms = AcceptedTerms(unit="device", filter=Filter(kind="pure", epsilon=2.0, delta=0.0), uses=2,
    ...               event=Event.of_pure(1.0))
    >>> chain = LedgerChain()
    >>> made = [chain.append(chain.accept("digits", "ab", terms))]
    >>> made += [chain.append(chain.charge("digits", f"key-{n}", b"bytes", np.array([], int), n)) for n in (0, 1)]
    >>> chain.spent("digits")
    Promise(epsilon=2.0, delta=0.0)
    >>> chain.charge("digits", "key-2", b"bytes", np.array([], int), 2)
    Traceback (most recent call last):
    crowdml.core.errors.BudgetExhausted: digits: 2 of 2 releases are spent
    """

    def __init__(self, cap: Cap = Cap()) -> None:  # noqa: B008  a frozen record
        """Begin an empty ledger."""
        self.cap = cap
        self.head = START
        self.length = 0
        self.tasks: dict[str, SpendingState] = {}
        self._bodies: dict[str, tuple[str, str]] = {}

    def accept(self, task: str, task_hash: str, terms: AcceptedTerms) -> Entry:
        """Return the entry that accepts a task, or raise `TermsViolated`. Accepting it again is refused."""
        if task in self.tasks:
            if self.tasks[task].task_hash != task_hash:
                raise TermsViolated(f"{task}: the terms are not those accepted")
            raise TermsViolated(f"{task}: {self.difference(task, task_hash, terms) or 'already accepted'}")
        if not terms.filter.covers(terms.event.times(terms.uses)):
            raise TermsViolated(f"{task}: {terms.uses} releases cost more than ε = {terms.filter.epsilon:g}")
        before, more = self.reserved(), counted(terms.filter)
        # Up, so that no rounding lets many small promises pass the cap together.
        epsilon, delta = sum_up(before.epsilon, more.epsilon), sum_up(before.delta, more.delta)
        if epsilon > self.cap.epsilon or delta > self.cap.delta:
            raise CapReached(
                f"{task}: ε = {epsilon:g}, δ = {delta:g} with all tasks; the owner's cap is ε = {self.cap.epsilon:g}, "
                f"δ = {self.cap.delta:g}"
            )
        return accepted(task, task_hash, terms)

    def reserved(self) -> Promise:
        """Return what all tasks together count for against the owner's cap."""
        counts = [spending.reserved() for spending in self.tasks.values()]
        return Promise(
            epsilon=functools.reduce(sum_up, (promise.epsilon for promise in counts), 0.0),
            delta=functools.reduce(sum_up, (promise.delta for promise in counts), 0.0),
        )

    def agrees(self, task: str, task_hash: str, terms: AcceptedTerms) -> bool:
        """Tell whether exactly these terms were accepted: signed task, limit, uses and what a release costs."""
        known = self.tasks.get(task)
        kept = terms_of(accepted(task, task_hash, terms))
        return known is not None and (known.task_hash, known.terms) == (task_hash, kept)

    def difference(self, task: str, task_hash: str, terms: AcceptedTerms) -> str | None:
        """Say what else was accepted for a signed task than is worked out for it now; None where it is the same.

        Which noise keeps a promise, and what it costs, is worked out by each version of crowdml for itself. A ledger
        that began with one law of noise must not go on with another, whose releases it would add up wrongly.
        """
        known = self._spending(task).terms
        now = terms_of(accepted(task, task_hash, terms))
        if known == now:
            return None
        return (
            f"its ledger accepted {known.describe()}; now the signed task gives {now.describe()}. One task never mixes "
            "the two: nothing was sent\n  if another version of crowdml joined, go on with that one, or leave: crowdml "
            "device withdraw"
        )

    def charge(
        self,
        task: str,
        key: str,
        body: bytes,
        samples: npt.NDArray[Any],
        version: int,
        uses: int = 1,
        numbering: Numbering | None = None,
    ) -> Entry | None:
        """Return the entry for one release; None for a resend of identical bytes, which costs nothing.

        Args:
            task: The task.
            key: Idempotency key of the check-in.
            body: The final bytes.
            samples: Numbers of the samples in it, each once.
            version: Version the device started from.
            uses: Uses of each sample that it counts for.
            numbering: Which sample has which number; what a charge has named before must be part of it.
        """
        digest = hashlib.sha256(body).hexdigest()
        if key in self._bodies:
            if self._bodies[key] != (task, digest):
                raise TermsViolated(f"{task}: other bytes under the key of an earlier release")
            return None
        most = self._require(task, samples, uses)
        before = self.tasks[task].numbering
        if before and (numbering is None or numbering.count < before.count):
            raise TermsViolated(f"{task}: fewer samples have a number than the {before.count} of an earlier release")
        several: Entry = {"uses": uses} if uses > 1 else {}
        if numbering:
            several |= {"known": numbering.count, "numbering": numbering.hash}
        return several | {
            "kind": "charge",
            "task": task,
            "key": key,
            "body": digest,
            "samples": len(samples),
            "named": hashlib.sha256(packed(samples)).hexdigest(),
            "most": most,
            "version": version,
        }

    def renew(self, task: str, task_hash: str, terms: AcceptedTerms) -> Entry:
        """Return the entry for a restored task, signed anew; everything that was spent stays spent."""
        if self._spending(task).terms != terms_of(accepted(task, task_hash, terms)):
            raise TermsViolated(f"{task}: the terms are not those accepted")
        return {"kind": "renew", "task": task, "task-hash": task_hash}

    def lost(self, task: str) -> Entry:
        """Return the entry for a numbering of samples that was lost."""
        return {"kind": "lost", "task": task, "most": self._spending(task).uses.most()}

    def close(self, task: str, *, public: bool = False) -> Entry:
        """Return the entry that ends a task.

        Args:
            task: The task.
            public: Whether its end follows from public history alone (see `spending`).
        """
        if self._spending(task).closed:
            raise TermsViolated(f"{task}: already closed")
        return {"kind": "close", "task": task, "public": int(public)}

    def append(self, entry: Entry, numbers: bytes = b"") -> bytes:
        """Take an entry into the chain and return its bytes; `numbers` are the samples of a charge, packed."""
        raw = canonical(entry)
        self._take(raw, entry, numbers)
        return raw

    def replay(self, raw: bytes, numbers: bytes = b"") -> None:
        """Take an entry that was kept, exactly as it was written; numbers of other samples are refused."""
        entry = read_entry(raw)
        if entry["kind"] == "charge" and hashlib.sha256(numbers).hexdigest() != entry["named"]:
            raise TermsViolated(f"{entry['task']}: the samples of {entry['key']} are not those that were charged")
        self._take(raw, entry, numbers)

    def _take(self, raw: bytes, entry: Mapping[str, Any], numbers: bytes) -> None:
        self._apply(entry, numbers)
        self.head, self.length = next_hash(self.head, raw), self.length + 1

    def spent(self, task: str) -> Promise:
        """Return ε spent by the unit that is worst off, the smallest figure that is valid."""
        state = self._spending(task)
        return state.spent().promise(state.terms.filter.delta)

    def left(self, task: str) -> int:
        """Return how many more releases the unit that is worst off may enter; none after the end of a task."""
        state = self._spending(task)
        if state.closed:
            return 0
        return state.terms.uses - (state.charged if state.terms.unit == "device" else state.uses.most())

    def _require(self, task: str, samples: npt.NDArray[Any], uses: int) -> int:
        """Refuse a release that the terms do not cover; return the uses of its most used sample."""
        state = self._spending(task)
        if state.closed:
            raise BudgetExhausted(f"{task}: the task is closed")
        if len(samples) and (len(np.unique(samples)) != len(samples) or samples.min() < 0 or samples.max() >= MOST):
            raise ValueError("samples are numbers from 0 on, each once")
        most = uses + state.uses.of(samples)
        if state.terms.unit == "device" and state.charged + uses > state.terms.uses:
            raise BudgetExhausted(f"{task}: {state.charged} of {state.terms.uses} releases are spent")
        if state.terms.unit == "sample" and not len(samples):
            raise ValueError("a release of a task that promises something to samples must name them")
        if state.terms.unit == "sample" and most > state.terms.uses:
            raise BudgetExhausted(
                f"{task}: a sample of this release was used {most - uses} of {state.terms.uses} times"
            )
        return most

    def _spending(self, task: str) -> SpendingState:
        if task not in self.tasks:
            raise TermsViolated(f"{task}: its terms were never accepted")
        return self.tasks[task]

    def _apply(self, entry: Mapping[str, Any], numbers: bytes) -> None:
        kind, task = entry["kind"], entry["task"]
        if kind == "accept":
            self.tasks[task] = SpendingState(terms=terms_of(entry), task_hash=entry["task-hash"])
            return
        state = self._spending(task)
        if kind == "charge":
            self._bodies[entry["key"]] = task, entry["body"]
            uses = entry.get("uses", 1)
            for _ in range(uses):
                state.uses.add(numbers)
            state.releases += 1
            state.charged += uses
            state.widest = max(state.widest, entry["samples"])
            if "numbering" in entry:
                state.numbering = Numbering(count=entry["known"], hash=entry["numbering"])
        elif kind == "lost":
            state.uses.forget()
            state.numbering = None
        elif kind == "renew":
            state.task_hash = entry["task-hash"]
        else:
            state.closed, state.freed = True, entry.get("public") == 1


def next_hash(before: bytes, raw: bytes) -> bytes:
    """Return the hash of an entry."""
    return hashlib.sha256(before + raw).digest()
