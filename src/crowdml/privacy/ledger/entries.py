"""Entries of a ledger: what an owner accepted, and the bytes that every runtime writes.

An entry is a flat JSON object of integers and strings, where numbers with a fraction are decimal strings, written
canonically (sorted keys, no spaces, ASCII). Its hash is SHA-256 over the hash before it (32 zero bytes at first)
followed by its bytes. Five kinds:

    accept   a task's terms were accepted: task, task-hash (of the signed task), unit, filter, epsilon, delta, uses,
             and what one release costs: pure (absent for Gaussian noise) and rho; where pure counts stand beside
             Gaussian noise also apart (ε of the counts) and rest (ρ without them); orders is "whole" where rho is
             proven at whole orders only; noise is "gaussian" where all that is not pure has Gaussian noise, continuous
             or rounded, whose sums are known exactly; device-rho, device-pure and device-noise are the cost for the
             whole device, where samples are promised something and a release is bounded as a whole
    charge   one release: task, key (idempotency key), body (hash of the final bytes), samples (how many are in it),
             named (hash of their numbers, little-endian 32-bit), most (uses of its most used sample, this one
             included), version; uses, where it counts for several; known (how many samples have a number) and
             numbering (hash over which has which), where samples are promised something
    lost     the device no longer knows which sample has which number: task, most (uses of the most used one). From
             now on every sample counts with these, since any may be that one
    renew    the operator restored the task from a backup: task, task-hash (of what was signed anew); terms and
             uses stay
    close    a task ended: task, public (1 where its end follows from public history alone, otherwise 0)

A task that promises nothing is accepted with an infinite ε and costs as much: its releases are recorded all the same.
Costs in entries are rounded up, so the sums never under-report. A charge precedes the first send; the same key with
the same bytes is a resend and costs nothing; the same key with other bytes would be a second release and is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from crowdml.core import record
from crowdml.core.errors import TermsViolated
from crowdml.privacy.accounting import FILTER_NAMES, Event, Filter, Unit
from crowdml.privacy.plan import Plan

_ANY_NUMBER = 2**31 - 1
"""Releases where nothing limits them."""
_UP = Context(prec=12, rounding=ROUND_CEILING)
NOISE_KEYS = frozenset({"noise", "device-noise"})
"""Keys that say that noise is Gaussian: without them Rényi divergences stand."""

Entry = dict[str, int | str]


@record
class AcceptedTerms:
    """What an owner accepted.

    Attributes:
        unit: What one promise protects.
        filter: Which sum enforces, and its limit.
        uses: Releases a sample may enter, or a device may make.
        event: Cost of one release.
        device: Cost of one release for the whole device, where samples are promised something and the release is
            bounded as a whole; None where it follows from the number of rows.
    """

    unit: Unit
    filter: Filter
    uses: int
    event: Event
    device: Event | None = None

    @staticmethod
    def of(plan: Plan) -> AcceptedTerms:
        """Take the terms from a plan."""
        terms = plan.terms
        return AcceptedTerms(
            unit=terms.unit, filter=terms.limit, uses=terms.uses, event=plan.event, device=plan.event_of_device
        )

    @staticmethod
    def of_nothing(releases: int | None = None) -> AcceptedTerms:
        """Return the terms of a task that promises nothing: ε is infinite, and only the number of releases is kept.

        >>> AcceptedTerms.of_nothing(3).event.promise(0.0)
        Promise(epsilon=inf, delta=0.0)
        """
        limit = Filter(kind="pure", epsilon=math.inf, delta=0.0)
        event = Event(pure=math.inf, rho=math.inf)
        return AcceptedTerms(unit="device", filter=limit, uses=releases or _ANY_NUMBER, event=event)

    @staticmethod
    def of_nothing_once() -> AcceptedTerms:
        """Return the same where each sample is in one release all the same, which is kept and never made again."""
        nothing = AcceptedTerms.of_nothing(1)
        return dataclasses.replace(nothing, unit="sample")

    @property
    def promises(self) -> bool:
        """Whether there is an ε that somebody could rely on."""
        return math.isfinite(self.filter.epsilon)

    def describe(self) -> str:
        """Say what is enforced, and what one release costs.

        >>> limit = Filter(kind="rdp", epsilon=8.0, delta=1e-5)
        >>> AcceptedTerms(unit="sample", filter=limit, uses=10, event=Event(rho=0.125)).describe()
        'ε = 8 at δ = 1e-05 for each sample, by Rényi divergences, with ρ = 0.125 in each of 10 uses'
        """
        limit = self.filter
        return (
            f"ε = {limit.epsilon:g} at δ = {limit.delta:g} for each {self.unit}, by {FILTER_NAMES[limit.kind]}, with "
            f"ρ = {self.event.rho:.6g} in each of {self.uses} uses"
        )


def decimal_up(value: float) -> str:
    """Write a cost as a decimal string of twelve digits, rounded up.

    >>> decimal_up(0.1), decimal_up(2.0)
    ('0.100000000001', '2')
    """
    return format(_UP.create_decimal(Decimal(value)).normalize(), "f")


def exact(value: float) -> str:
    """Write a limit as the shortest decimal that reads back as the same number."""
    return format(Decimal(repr(value)).normalize(), "f")


def accepted(task: str, task_hash: str, terms: AcceptedTerms) -> Entry:
    """Write the entry that accepts a task's terms; costs are rounded up."""
    entry: Entry = {
        "kind": "accept",
        "task": task,
        "task-hash": task_hash,
        "unit": terms.unit,
        "filter": terms.filter.kind,
        "epsilon": exact(terms.filter.epsilon),
        "delta": exact(terms.filter.delta),
        "uses": terms.uses,
    }
    if terms.event.whole:
        entry["orders"] = "whole"
    if terms.event.mixed:
        epsilon, rho = terms.event.mixed
        entry |= {"apart": decimal_up(epsilon), "rest": decimal_up(rho)}
    for prefix, event in (("", terms.event), ("device-", terms.device)):
        if event:
            entry[f"{prefix}rho"] = decimal_up(event.rho)
        # Of a device's cost only the sums are kept: with counts among them, not all of ρ is that of Gaussian noise.
        if event and event.gaussian and not (prefix and event.mixed):
            entry[f"{prefix}noise"] = "gaussian"
        if event and math.isfinite(event.pure):
            entry[f"{prefix}pure"] = decimal_up(event.pure)
    return entry


def terms_of(entry: Mapping[str, Any]) -> AcceptedTerms:
    """Read the terms back."""
    if entry["filter"] not in FILTER_NAMES:
        raise TermsViolated(f'no sum is called "{entry["filter"]}"')

    def event(prefix: str, mixed: tuple[float, float] | None = None) -> Event:
        pure, rho = float(entry.get(f"{prefix}pure", "inf")), float(entry[f"{prefix}rho"])
        whole, gaussian = entry.get("orders") == "whole", entry.get(f"{prefix}noise") == "gaussian"
        return Event(pure=pure, rho=rho, mixed=mixed, whole=whole, gaussian=gaussian)

    return AcceptedTerms(
        unit="sample" if entry["unit"] == "sample" else "device",
        filter=Filter(kind=entry["filter"], epsilon=float(entry["epsilon"]), delta=float(entry["delta"])),
        uses=int(entry["uses"]),
        event=event("", (float(entry["apart"]), float(entry["rest"])) if "apart" in entry else None),
        device=event("device-") if "device-rho" in entry else None,
    )
