"""What a plan says of updates, and what a server finds wrong with a check-in."""

from __future__ import annotations

from crowdml.algorithms.contract import Algorithm
from crowdml.core import CheckIn
from crowdml.privacy import Plan
from crowdml.privacy.limits import GridLimits
from crowdml.privacy.noise.grid import GridMechanism
from crowdml.privacy.noise.laws import Mechanism
from crowdml.privacy.sanitisers.base import Sanitiser
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.privacy.sanitisers.paper import Paper


def update_of(plan: Plan) -> GridMechanism:
    """Return bound and noise of the updates of a sound plan."""
    return on_grid(plan.last)


def on_grid(sanitiser: Sanitiser) -> GridMechanism:
    """Return bound and noise of integers on a grid."""
    assert isinstance(sanitiser, OnGrid)
    return sanitiser.mechanism


def paper_of(plan: Plan) -> Mechanism:
    """Return bound and noise of the updates of a paper's plan."""
    assert isinstance(plan.last, Paper)
    return plan.last.mechanism


def problem_with(content: CheckIn, algorithm: Algorithm, plan: Plan) -> str | None:
    """Say why no honest device sends this, whatever its owner has chosen; None where one might."""
    return plan.noisiest.last.bind(algorithm.last.sanitiser.use).problem(content, algorithm.schedule.most_rows)


def limits_of(plan: Plan) -> GridLimits:
    """Return the limits of integers on the grid, for the most noise that an owner may choose."""
    last = plan.noisiest.last
    assert isinstance(last, OnGrid)
    return last.limits
