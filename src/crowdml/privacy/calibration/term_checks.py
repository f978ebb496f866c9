"""What is refused whatever the mode: terms that mean nothing, say nothing here, or leave something open.

An ε or a δ beyond which a promise says nothing is refused wherever one is made. An ε of a thousand allows every
probability to change by a factor with 435 digits. A δ of 1/n allows one of n units to be published outright: picking
one at random and printing it keeps (0, 1/n). So δ must be below 1/n. How many units there will be is known to a
simulation; a live task declares it (`privacy.units`), and its operator signs it with the rest of the terms. A device
that knows more samples of its own than the task allows for refuses, whatever was declared.
"""

from __future__ import annotations

from typing import Any

from crowdml.core import BadInput
from crowdml.privacy.accounting import Terms, require_delta
from crowdml.privacy.settings import PrivacySettings

LARGEST_EPSILON = 1000.0
"""Beyond this ε a promise says nothing."""

LARGEST_DELTA = 1e-4
"""Largest δ of a task that does not say how many units it promises something to."""


def stated(settings: PrivacySettings, **more: Any) -> Terms:
    """Begin the terms of a plan with what the settings say of them."""
    return Terms(mode=settings.mode, unit=settings.unit, adjacency=settings.adjacency, delta=settings.delta, **more)


def require_meaningful(settings: PrivacySettings) -> None:
    """Refuse an ε that owners might get, or a δ, that promises nothing."""
    largest = {"epsilon": settings.epsilon, "owner-range": settings.owner_range and settings.owner_range[1]}
    for name, epsilon in largest.items():
        if epsilon and epsilon > LARGEST_EPSILON:
            raise BadInput(
                f"ε = {epsilon:g} promises nothing anyone could rely on",
                where=f"privacy.{name}",
                hint=f'at most {LARGEST_EPSILON:g}; mode = "none" says openly that there is no guarantee',
            )
    if settings.units is not None:
        require_delta(settings.delta, settings.units, settings.unit)
    elif settings.delta > LARGEST_DELTA:
        raise BadInput(
            f"delta = {settings.delta:g} is above {LARGEST_DELTA:g}, and nothing says how many {settings.unit}s are "
            "promised something: with 1/delta of them, publishing one outright would keep it",
            where="privacy.delta",
            hint=f"such as delta = 1e-06; or declare the number of {settings.unit}s, such as units = 1000: then delta "
            "must be below 1/units",
        )


def refuse_given(settings: PrivacySettings, names: tuple[str, ...], why: str, hint: str = "leave it out") -> None:
    """Refuse settings that are not as they are when nobody gives them."""
    for name in names:
        if getattr(settings, name) != PrivacySettings.model_fields[name].default:
            raise BadInput(why, where=f"privacy.{name.replace('_', '-')}", hint=hint)


def refuse_steps(settings: PrivacySettings) -> None:
    """Refuse what has a meaning for noise in local steps only."""
    if settings.noise_at == "message":
        refuse_given(
            settings,
            ("clipping", "sampling", "sampling_rate", "noise_multiplier"),
            "has no effect on noise that is added to the message",
            'leave it out, or noise-at = "steps"',
        )


def require_step_noise(settings: PrivacySettings) -> None:
    """Refuse noise in steps that is not Gaussian: gradients are long in L1, and steps are many."""
    if settings.mechanism != "gaussian":
        raise BadInput("noise in local steps is Gaussian", where="privacy.mechanism", hint='use mechanism = "gaussian"')


def require_parts(settings: PrivacySettings, epsilon: float, pure: bool, delta: str) -> None:
    """Refuse noise without the δ that it needs, and counts that take all of ε."""
    if not pure and settings.delta == 0:
        raise BadInput(
            f'"{settings.mechanism}" needs delta above zero', where="privacy.delta", hint=f"such as delta = {delta}"
        )
    if settings.statistics_epsilon >= epsilon:
        raise BadInput(
            f"statistics-epsilon = {settings.statistics_epsilon} leaves nothing of epsilon = {epsilon}",
            where="privacy.statistics-epsilon",
            hint="it is a part of epsilon: make it smaller",
        )


def require_replace(settings: PrivacySettings, seen: str = "the number of samples travels") -> None:
    """Refuse to protect who is there where that is seen."""
    if settings.adjacency == "add-remove":
        raise BadInput(
            f"{seen} in clear, so add-remove is not protected",
            where="privacy.adjacency",
            hint='use adjacency = "replace"',
        )


def require_bound(radius: float | None, order: int) -> float:
    """Refuse gradients that nothing bounds, or that are all zero."""
    if not radius:
        raise BadInput(
            "nothing bounds the gradient of one example" if radius is None else "every row is zero",
            where="privacy.clip",
            hint=f"give clip, or end data.transform with a norm of order {order} and use a linear model",
        )
    return radius


def require_limit(limit: int | None) -> int:
    """Refuse a total over nobody knows how many releases of a device."""
    if limit is None:
        raise BadInput(
            "epsilon is a total: over how many releases of one device?",
            where="stop.max-releases",
            hint="such as max-releases = 10",
        )
    return limit


def require_gaussian(settings: PrivacySettings) -> None:
    """Refuse to correlate noise whose draws cannot be mixed without changing what they prove."""
    if settings.mechanism != "gaussian":
        raise BadInput(
            f'correlated noise without a matrix-mechanism bound: there is none for "{settings.mechanism}"',
            where="privacy.mechanism",
            hint='use mechanism = "gaussian", or leave noise-sequence out',
        )
