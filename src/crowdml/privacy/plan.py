"""Plan: the terms of a task, and the sanitiser of each of its phases that keeps them.

What is added and what is reported come from the same records, so that they cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crowdml.core import record
from crowdml.privacy.accounting import Event, Terms
from crowdml.privacy.cost import Cost, Figure, figure
from crowdml.privacy.noise.banded import Banded, Floats
from crowdml.privacy.sanitisers.base import Sanitiser


@record
class Plan:
    """How a device sanitises, and what is promised.

    Attributes:
        terms: What is promised, over all phases.
        sanitisers: What protects, for each phase; all but the last are for one release each.
    """

    terms: Terms
    sanitisers: tuple[Sanitiser, ...]

    def __post_init__(self) -> None:
        """Check the promise with the sums that the ledger will use."""
        terms = self.terms
        if not terms.promised:
            return
        if not terms.limit.covers(self.event.times(terms.uses)):
            raise ValueError(f"{terms.uses} releases cost more than ε = {terms.limit.epsilon}")
        counted = self.event.times(terms.first_uses)
        for sanitiser in self.sanitisers[:-1]:
            first = _known(sanitiser.cost(1, terms.changing)).event()
            more = first.rho > counted.rho or any(a > b for a, b in zip(first.apart, counted.apart, strict=True))
            if more or first.pure > counted.pure or _kind(first) != _kind(counted):
                raise ValueError(f"the first release costs more than the {terms.first_uses} uses that it counts for")

    @property
    def last(self) -> Sanitiser:
        """What protects in the phase that lasts."""
        return self.sanitisers[-1]

    @property
    def promises(self) -> bool:
        """Whether there is noise for which an ε can be stated."""
        return self.last.promises

    @property
    def simulated(self) -> bool:
        """Whether it exists in simulation only."""
        return any(sanitiser.simulated for sanitiser in self.sanitisers)

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise by name; a simulation hands in each device's own."""
        return {name: scale for sanitiser in self.sanitisers for name, scale in sanitiser.scales.items()}

    @property
    def noise(self) -> float:
        """Scale of the noise on what a device sends in the phase that lasts; 0 where there is none."""
        return self.scales.get("noise", 0.0)

    @property
    def event(self) -> Event:
        """What a ledger charges for one use of the promised unit."""
        return _known(self.last.cost(1, self.terms.changing)).event()

    @property
    def event_of_device(self) -> Event | None:
        """The same for the whole device, where samples are promised something and a release is bounded as a whole.

        None where it follows from the number of rows.
        """
        if self.terms.unit == "device" or self.grows_with_rows:
            return None
        return _known(self.last.cost(1, self.terms.rows or 1)).event()

    @property
    def grows_with_rows(self) -> bool:
        """Whether what is said of a device grows with its rows: each is bounded by itself, or counted without end."""
        return self.last.bounds_rows or (self.last.counts is not None and self.terms.rows is None)

    def after(self, releases: int) -> Event:
        """What is charged for so many releases, the first of them included."""
        return self.event.times(releases + self.terms.first_uses - 1 if releases else 0)

    def cost(self, releases: int, rows: int | None = None) -> Cost | None:
        """Return what so many releases cost, over all phases; None where no ε can be stated.

        Args:
            releases: How many, at least as many as there are phases.
            rows: None for one sample that is in all of them; for a device, its rows in each.
        """
        *once, last = self.sanitisers
        total = last.cost(releases - len(once), rows)
        for sanitiser in once:
            more = sanitiser.cost(1, rows)
            total = total.plus(more) if total is not None and more is not None else None
        return total

    def figure(self, releases: int, rows: int | None = None) -> Figure | None:
        """Return the smallest valid ε of so many releases; None where none can be stated."""
        cost = self.cost(releases, rows)
        return None if cost is None else figure(cost, self.terms.delta)

    def for_owner(self, epsilon: float) -> Plan:
        """Return the plan of a device whose owner has chosen this ε, within the range of the terms.

        Everything that server and other devices see keeps its shape; only the noise is another.
        """
        self.terms.require_choice(epsilon)
        terms, made = self.terms, list[Sanitiser]()
        for sanitiser in self.sanitisers:
            chosen, terms = sanitiser.for_owner(self.terms, epsilon)
            made.append(chosen)
        return Plan(terms=terms, sanitisers=tuple(made))

    @property
    def noisiest(self) -> Plan:
        """The plan of an owner who has chosen the smallest ε: a server does not know who has chosen what."""
        return self.for_owner(self.terms.owner_range[0]) if self.terms.owner_range else self

    def with_matrices(self, columns_of: Callable[[Banded], Floats]) -> Plan:
        """Return the same, knowing the matrices that correlate noise; a driver works them out."""
        made = [
            sanitiser.with_matrix(columns_of(shape)) if (shape := sanitiser.wants_matrix) else sanitiser
            for sanitiser in self.sanitisers
        ]
        return replace(self, sanitisers=tuple(made))


def _kind(event: Event) -> tuple[bool, bool]:
    """What is known of the releases that are not pure."""
    return event.whole, event.gaussian


def _known(cost: Cost | None) -> Cost:
    if cost is None:
        raise ValueError("nothing is promised of it, so no ledger can charge for it")
    return cost
