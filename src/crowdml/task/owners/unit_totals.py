"""What all releases of a task say about one sample and about a whole device, in odds and in ε, or why not."""

from __future__ import annotations

from crowdml.core import record
from crowdml.privacy import Cost, Figure, Plan, figure
from crowdml.privacy.accounting import Unit
from crowdml.privacy.calibration.term_checks import LARGEST_EPSILON
from crowdml.privacy.odds import Odds, odds_after, odds_of
from crowdml.task.task import Task

UNITS: tuple[Unit, ...] = ("sample", "device")
NOTHING, NOT_LIMITED, GROWS = "nothing is promised", "not limited", "grows with its rows"
"""Why there is no figure."""


@record
class UnitTotal:
    """What releases say about one unit.

    Attributes:
        figure: Smallest valid ε; None where there is none, or one that says nothing.
        odds: How often the best guess is right; None where nothing limits it.
        missing: Why there is no ε; empty where there is one.
    """

    figure: Figure | None = None
    odds: Odds | None = None
    missing: str = ""


def whole_task(task: Task, plan: Plan) -> dict[Unit, UnitTotal]:
    """Return what all that a task will ever send says about either unit."""
    return {
        "sample": _total(plan, "sample", uses_of_sample(task)),
        "device": _total(plan, "device", task.stop.max_releases),
    }


def one_release(plan: Plan) -> dict[Unit, UnitTotal]:
    """Return what a single release says about either unit."""
    return {unit: _total(plan, unit, 1) for unit in UNITS}


def uses_of_sample(task: Task) -> int | None:
    """Return how many releases a sample may enter; None where nothing limits them.

    A device counts uses only where samples are promised something; elsewhere a sample may be in every release.
    """
    limits = (task.most_uses, task.stop.max_releases)
    return min((limit for limit in limits if limit is not None), default=None)


def _total(plan: Plan, unit: Unit, releases: int | None) -> UnitTotal:
    rows = plan.terms.rows
    if not plan.terms.promised:
        return UnitTotal(missing=NOTHING)
    if releases is None:
        return UnitTotal(missing=NOT_LIMITED)
    if unit == "device" and plan.grows_with_rows and rows is None:
        return UnitTotal(missing=GROWS)
    cost = plan.cost(releases, None if unit == "sample" else rows or 1)
    if cost is None:
        return UnitTotal(missing=NOTHING)
    odds, found = _odds(plan, unit, releases, cost), figure(cost, plan.terms.delta)
    if found.epsilon > LARGEST_EPSILON:
        return UnitTotal(odds=odds, missing=f"ε above {LARGEST_EPSILON:g}: says nothing")
    return UnitTotal(figure=found, odds=odds)


def _odds(plan: Plan, unit: Unit, releases: int, cost: Cost) -> Odds:
    """Of the promised unit as the ledger charges it: a first release may count for several uses, and cost less."""
    if unit == plan.terms.unit:
        return odds_after(plan.event, releases + plan.terms.first_uses - 1)
    return odds_of(cost)
