"""Sound terms for a net in pieces: noise on the first sums of each row, and labels answered at random, once.

ε is the total of a sample, label included: `label-epsilon` of it for the answer, the rest for the column. A sample
enters one release, whatever the number of passes (`sanitisers.first_sums` has the proof).
"""

from __future__ import annotations

from crowdml.core import BadInput
from crowdml.privacy.accounting import Filter
from crowdml.privacy.calibration.least_noise import noise_for
from crowdml.privacy.calibration.term_checks import (
    refuse_given,
    require_meaningful,
    require_parts,
    require_replace,
    stated,
)
from crowdml.privacy.gaussian import gaussian_budget
from crowdml.privacy.noise.grid import make_grid
from crowdml.privacy.noise.response import RandomisedResponse
from crowdml.privacy.plan import Plan
from crowdml.privacy.releases import ModelBounds, Releases
from crowdml.privacy.sanitisers.first_sums import FirstCut
from crowdml.privacy.settings import PrivacySettings


def first_cut_plan(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    """Check the terms, and find the least noise that keeps them."""
    epsilon = _checked(settings, releases)
    labels = RandomisedResponse.calibrated(releases.label_epsilon, model.classes)
    rho = gaussian_budget(epsilon - releases.label_epsilon, settings.delta) * (1 - 1e-9)
    assert releases.bound is not None  # noqa: S101  recipes with pieces say it
    grid = make_grid(2, model.first_sums, releases.bound, "example")
    made = FirstCut(mechanism=noise_for(grid, rho, None), labels=labels)
    limit = Filter(kind="gaussian", epsilon=epsilon, delta=settings.delta)
    terms = stated(settings, uses=1, filter=limit, owner_range=(epsilon, epsilon))
    return Plan(terms=terms, sanitisers=(made,))


def _checked(settings: PrivacySettings, releases: Releases) -> float:
    """Refuse, with what would be right; return ε."""
    if settings.mechanism != "gaussian":
        raise BadInput(
            "noise on what crosses a cut is Gaussian", where="privacy.mechanism", hint='use mechanism = "gaussian"'
        )
    if settings.unit != "sample":
        raise BadInput(
            "noise on what crosses a cut is drawn for each row: it promises something to samples",
            where="privacy.unit",
            hint='use unit = "sample"',
        )
    if settings.epsilon is None:
        raise BadInput(
            "sound mode needs epsilon, the total over the task",
            where="privacy.epsilon",
            hint='such as epsilon = 20.0; mode = "none" promises nothing',
        )
    if settings.max_uses not in (None, 1):
        raise BadInput(
            "a sample enters one release: what is drawn for it is kept, and sent again in every pass",
            where="privacy.max-uses",
            hint="leave it out",
        )
    refuse_given(settings, ("clip",), "first sums are bounded by algorithm.cut-clip")
    why = "noise follows from epsilon, and is drawn once for each row"
    names = ("noise_at", "noise_scale", "noise_factor", "noise_bands", "noise_sequence", "owner_range")
    refuse_given(settings, (*names, "statistics_epsilon", "label_share"), why)
    require_replace(settings, "the number of samples travels")
    require_meaningful(settings)
    require_parts(settings, settings.epsilon, False, "1e-6")
    if releases.label_epsilon >= settings.epsilon:
        raise BadInput(
            f"label-epsilon = {releases.label_epsilon:g} leaves nothing of epsilon = {settings.epsilon:g}",
            where="algorithm.label-epsilon",
            hint="it is a part of privacy.epsilon: make it smaller",
        )
    return settings.epsilon
