"""The ledger: an append-only, hash-chained record of what a device has promised and spent, across tasks.

This is the pure part: `LedgerChain` takes entries and refuses what the terms or the owner's cap do not cover; where
entries are kept is a driver's business. An entry is a flat JSON object of integers and strings, where numbers with a
fraction are decimal strings, written canonically (sorted keys, no spaces, ASCII). Its hash is SHA-256 over the hash
before it (32 zero bytes at first) followed by its bytes. Five kinds:

    accept   a task's terms were accepted: task, sheet (hash of the signed sheet), unit, filter, epsilon, delta, uses,
             and what one release costs: pure (absent for Gaussian noise) and rho; where pure counts stand beside
             Gaussian noise also apart (ε of the counts) and rest (ρ without them); orders is "whole" where rho is
             proven at whole orders only; device-rho and device-pure are the cost for the whole device, where samples
             are promised something and a release is bounded as a whole
    charge   one release: task, key (idempotency key), body (hash of the final bytes), samples (how many are in it),
             named (hash of their numbers, little-endian 32-bit), most (uses of its most used sample, this one
             included), version; uses, where it counts for several; known (how many samples have a number) and
             numbering (hash over which has which), where samples are promised something
    lost     the device no longer knows which sample has which number: task, most (uses of the most used one). From
             now on every sample counts with these, since any may be that one
    renew    the operator restored the task from a backup: task, sheet (hash of the new one); terms and uses stay
    close    a task ended: task, public (1 where its end follows from public history alone, otherwise 0)

A task that promises nothing is accepted with an infinite ε and costs as much: its releases are recorded all the same.
Costs in entries are rounded up, so the sums never under-report. A charge precedes the first send; the same key with
the same bytes is a resend and costs nothing; the same key with other bytes would be a second release and is refused.

A closed task counts against the owner's cap with less than its whole promise only if its end was public: `freeing` says
with how much, and why. Nothing is charged to it any more.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crowdml.core import record
from crowdml.core.errors import BudgetExhausted, CapReached, TermsViolated
from crowdml.privacy.accounting import FILTER_NAMES, Event, Filter, FilterKind, sum_up
from crowdml.privacy.freeing import counted, counted_after
from crowdml.privacy.ledger_bytes import canonical, decimal_up, exact, next_hash
from crowdml.privacy.promise import Promise
from crowdml.privacy.sound import Sound
from crowdml.privacy.uses import MOST, Numbering, UsesState, packed

START = bytes(32)
_ANY_NUMBER = 2**31 - 1
"""Releases where nothing limits them."""
_DECODER = json.JSONDecoder()

Entry = dict[str, int | str]


@record
class Terms:
    """What an owner accepted.

    Attributes:
        unit: What one promise protects.
        filter: Which sum enforces, and its limit.
        uses: Releases a sample may enter, or a device may make.
        event: Cost of one release.
        device: Cost of one release for the whole device, where samples are promised something and the release is
            bounded as a whole; None where it follows from the number of rows.
    """

    unit: Literal["sample", "device"]
    filter: Filter
    uses: int
    event: Event
    device: Event | None = None

    @staticmethod
    def of(sound: Sound) -> Terms:
        """Take the terms from a plan."""
        whole = sound.unit == "sample" and sound.update.grid.per == "release"
        device = sound.of_device(1) if whole else None
        return Terms(unit=sound.unit, filter=sound.filter, uses=sound.uses, event=sound.event, device=device)

    @staticmethod
    def of_nothing(releases: int | None = None) -> Terms:
        """Return the terms of a task that promises nothing: ε is infinite, and only the number of releases is kept.

        >>> Terms.of_nothing(3).event.promise(0.0)
        Promise(epsilon=inf, delta=0.0)
        """
        limit = Filter(kind="pure", epsilon=math.inf, delta=0.0)
        event = Event(pure=math.inf, rho=math.inf)
        return Terms(unit="device", filter=limit, uses=releases or _ANY_NUMBER, event=event)

    @property
    def promises(self) -> bool:
        """Whether there is an ε that somebody could rely on."""
        return math.isfinite(self.filter.epsilon)


@record
class Cap:
    """The owner's limit over all tasks; ε and δ of tasks add up. No cap is an infinite one."""

    epsilon: float = math.inf
    delta: float = 1.0


@dataclasses.dataclass(kw_only=True)
class SpendingState:
    """What one task has spent so far. It changes in place: a ledger of ten thousand releases is read in a moment.

    Attributes:
        terms: As accepted.
        sheet: Hash of the sheet.
        uses: How often each sample was used, by its number on this device.
        numbering: Which sample has which number, as of the last charge that says so.
        releases: Charges so far.
        charged: Uses that these count for; as many, where each counts for one.
        widest: Most samples in one release.
        closed: Whether the task has ended.
        freed: Whether it ended in public, so that what was never released need not count.
    """

    terms: Terms
    sheet: str
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

    def reserved(self) -> Promise:
        """What counts against the owner's cap: the whole promise, or less once the task ended in public."""
        if self.freed:
            return counted_after(self.terms.filter, self.terms.event, self.terms.uses, self.charged)
        return counted(self.terms.filter)


class LedgerChain:
    """The state of a ledger: the hash of its last entry, and what every task has spent.

    >>> terms = Terms(unit="device", filter=Filter(kind="pure", epsilon=2.0, delta=0.0), uses=2,
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

    def accept(self, task: str, sheet: str, terms: Terms) -> Entry:
        """Return the entry that accepts a task, or raise `TermsViolated`. Accepting the same sheet again is refused."""
        if task in self.tasks:
            known = self.tasks[task].sheet == sheet
            raise TermsViolated(f"{task}: {'already accepted' if known else 'the terms are not those accepted'}")
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
        return _accepted(task, sheet, terms)

    def reserved(self) -> Promise:
        """Return what all tasks together count for against the owner's cap."""
        counts = [own.reserved() for own in self.tasks.values()]
        return Promise(
            epsilon=functools.reduce(sum_up, (own.epsilon for own in counts), 0.0),
            delta=functools.reduce(sum_up, (own.delta for own in counts), 0.0),
        )

    def agrees(self, task: str, sheet: str, terms: Terms) -> bool:
        """Tell whether exactly these terms were accepted: sheet, limit, uses and what a release costs."""
        known = self.tasks.get(task)
        return known is not None and known.sheet == sheet and known.terms == _terms(_accepted(task, sheet, terms))

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

    def renew(self, task: str, sheet: str, terms: Terms) -> Entry:
        """Return the entry for a new sheet of a restored task; everything that was spent stays spent."""
        if self._spending(task).terms != _terms(_accepted(task, sheet, terms)):
            raise TermsViolated(f"{task}: the terms are not those accepted")
        return {"kind": "renew", "task": task, "sheet": sheet}

    def lost(self, task: str) -> Entry:
        """Return the entry for a numbering of samples that was lost."""
        return {"kind": "lost", "task": task, "most": self._spending(task).uses.most()}

    def close(self, task: str, *, public: bool = False) -> Entry:
        """Return the entry that ends a task.

        Args:
            task: The task.
            public: Whether its end follows from public history alone (see `freeing`).
        """
        if self._spending(task).closed:
            raise TermsViolated(f"{task}: already closed")
        return {"kind": "close", "task": task, "public": int(public)}

    def append(self, entry: Entry, numbers: bytes = b"") -> bytes:
        """Take an entry into the chain and return its bytes; `numbers` are the samples of a charge, packed."""
        raw = canonical(entry)
        self._apply(entry, numbers)
        self.head, self.length = next_hash(self.head, raw), self.length + 1
        return raw

    def replay(self, raw: bytes, numbers: bytes = b"") -> None:
        """Take an entry that was kept, exactly as it was written; numbers of other samples are refused."""
        entry = _DECODER.decode(raw.decode("ascii"))
        if entry["kind"] == "charge" and hashlib.sha256(numbers).hexdigest() != entry["named"]:
            raise TermsViolated(f"{entry['task']}: the samples of {entry['key']} are not those that were charged")
        self._apply(entry, numbers)
        self.head, self.length = next_hash(self.head, raw), self.length + 1

    def spent(self, task: str) -> Promise:
        """Return ε spent by the unit that is worst off, the smallest figure that is valid."""
        own = self._spending(task)
        return own.spent().promise(own.terms.filter.delta)

    def left(self, task: str) -> int:
        """Return how many more releases the unit that is worst off may enter; none after the end of a task."""
        own = self._spending(task)
        if own.closed:
            return 0
        return own.terms.uses - (own.charged if own.terms.unit == "device" else own.uses.most())

    def _require(self, task: str, samples: npt.NDArray[Any], uses: int) -> int:
        """Refuse a release that the terms do not cover; return the uses of its most used sample."""
        own = self._spending(task)
        if own.closed:
            raise BudgetExhausted(f"{task}: the task is closed")
        if len(samples) and (len(np.unique(samples)) != len(samples) or samples.min() < 0 or samples.max() >= MOST):
            raise ValueError("samples are numbers from 0 on, each once")
        most = uses + own.uses.of(samples)
        if own.terms.unit == "device" and own.charged + uses > own.terms.uses:
            raise BudgetExhausted(f"{task}: {own.charged} of {own.terms.uses} releases are spent")
        if own.terms.unit == "sample" and not len(samples):
            raise ValueError("a release of a task that promises something to samples must name them")
        if own.terms.unit == "sample" and most > own.terms.uses:
            raise BudgetExhausted(f"{task}: a sample of this release was used {most - uses} of {own.terms.uses} times")
        return most

    def _spending(self, task: str) -> SpendingState:
        if task not in self.tasks:
            raise TermsViolated(f"{task}: its terms were never accepted")
        return self.tasks[task]

    def _apply(self, entry: Mapping[str, Any], numbers: bytes) -> None:
        kind, task = entry["kind"], entry["task"]
        if kind == "accept":
            self.tasks[task] = SpendingState(terms=_terms(entry), sheet=entry["sheet"])
            return
        own = self._spending(task)
        if kind == "charge":
            self._bodies[entry["key"]] = task, entry["body"]
            uses = entry.get("uses", 1)
            for _ in range(uses):
                own.uses.add(numbers)
            own.releases += 1
            own.charged += uses
            own.widest = max(own.widest, entry["samples"])
            if "numbering" in entry:
                own.numbering = Numbering(count=entry["known"], hash=entry["numbering"])
        elif kind == "lost":
            own.uses.forget()
            own.numbering = None
        elif kind == "renew":
            own.sheet = entry["sheet"]
        else:
            own.closed, own.freed = True, entry.get("public") == 1


def _accepted(task: str, sheet: str, terms: Terms) -> Entry:
    entry: Entry = {
        "kind": "accept",
        "task": task,
        "sheet": sheet,
        "unit": terms.unit,
        "filter": terms.filter.kind,
        "epsilon": exact(terms.filter.epsilon),
        "delta": exact(terms.filter.delta),
        "uses": terms.uses,
        "rho": decimal_up(terms.event.rho),
    }
    if terms.event.whole:
        entry["orders"] = "whole"
    if terms.device:
        entry["device-rho"] = decimal_up(terms.device.rho)
        if not math.isinf(terms.device.pure):
            entry["device-pure"] = decimal_up(terms.device.pure)
    if terms.event.mixed:
        epsilon, rho = terms.event.mixed
        return entry | {"apart": decimal_up(epsilon), "rest": decimal_up(rho)}
    return entry if math.isinf(terms.event.pure) else entry | {"pure": decimal_up(terms.event.pure)}


def _terms(entry: Mapping[str, Any]) -> Terms:
    mixed = (float(entry["apart"]), float(entry["rest"])) if "apart" in entry else None
    device, whole = None, entry.get("orders") == "whole"
    if "device-rho" in entry:
        device = Event(pure=float(entry.get("device-pure", "inf")), rho=float(entry["device-rho"]), whole=whole)
    return Terms(
        unit="sample" if entry["unit"] == "sample" else "device",
        filter=Filter(kind=_kind(str(entry["filter"])), epsilon=float(entry["epsilon"]), delta=float(entry["delta"])),
        uses=int(entry["uses"]),
        event=Event(pure=float(entry.get("pure", "inf")), rho=float(entry["rho"]), mixed=mixed, whole=whole),
        device=device,
    )


def _kind(name: str) -> FilterKind:
    """Read the name of a filter."""
    for kind in FILTER_NAMES:
        if kind == name:
            return kind
    raise TermsViolated(f'no sum is called "{name}"')
