"""Terms that mean something: an ε or a δ beyond which a promise says nothing is refused wherever one is made.

An ε of a thousand allows every probability to change by a factor with 435 digits. A δ of 1/n allows one of n units to
be published outright: picking one at random and printing it keeps (0, 1/n). So δ must be below 1/n. How many units
there will be is known to a simulation; a live task declares it (`privacy.units`), and its operator signs it with the
rest of the terms. A device that knows more samples of its own than the task allows for refuses, whatever was
declared.
"""

from __future__ import annotations

from crowdml.core import BadInput
from crowdml.privacy.settings import PrivacySettings

LARGEST_EPSILON = 1000.0
"""Beyond this ε a promise says nothing."""

LARGEST_DELTA = 1e-4
"""Largest δ of a task that does not say how many units it promises something to."""


def require_meaningful(terms: PrivacySettings) -> None:
    """Refuse an ε that owners might get, or a δ, that promises nothing; only sound mode promises anything."""
    if terms.mode != "sound":
        return
    if terms.epsilon is not None:
        _require_epsilon(terms.epsilon, "epsilon")
    if terms.owner_range is not None:
        _require_epsilon(terms.owner_range[1], "owner-range")
    if terms.units is not None:
        require_delta(terms, terms.units)
    elif terms.delta > LARGEST_DELTA:
        raise BadInput(
            f"delta = {terms.delta:g} is above {LARGEST_DELTA:g}, and nothing says how many {terms.unit}s are promised "
            "something: with 1/delta of them, publishing one outright would keep it",
            where="privacy.delta",
            hint=f"such as delta = 1e-06; or declare the number of {terms.unit}s, such as units = 1000: then delta "
            "must be below 1/units",
        )


def require_delta(terms: PrivacySettings, units: int, where: str = "privacy.delta") -> None:
    """Refuse a δ that would allow one of so many units to be published outright.

    Args:
        terms: The `[privacy]` section.
        units: Number of samples, or of devices, that are promised something.
        where: What a refusal names.
    """
    problem = delta_problem(terms, units)
    if terms.mode == "sound" and problem:
        raise BadInput(
            problem,
            where=where,
            hint=f"delta must be below 1/{units} = {1 / units:.3g}, and should be well below, such as "
            f"delta = {0.01 / units:.0e}",
        )


def delta_problem(terms: PrivacySettings, units: int) -> str | None:
    """Say why δ means nothing to so many units; None where it means something."""
    if terms.delta == 0 or terms.delta * units < 1:
        return None
    return f"delta = {terms.delta:g} is no promise to {units} {terms.unit}s: publishing one of them outright keeps it"


def _require_epsilon(epsilon: float, name: str) -> None:
    if epsilon > LARGEST_EPSILON:
        raise BadInput(
            f"ε = {epsilon:g} promises nothing anyone could rely on",
            where=f"privacy.{name}",
            hint=f'at most {LARGEST_EPSILON:g}; mode = "none" says openly that there is no guarantee',
        )
