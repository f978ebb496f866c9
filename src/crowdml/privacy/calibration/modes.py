"""Calibration: from the terms of a task file to what is promised and what protects, before anything is built.

A mode is one entry of `MODES`: a function of the terms, of what the algorithm releases and of what the model proves
about it. Nobody else asks which mode a task has: everything is read off the plan that it returns.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import BadInput
from crowdml.privacy.calibration.paper_plan import paper_plan
from crowdml.privacy.calibration.sound_plan import sound_plan
from crowdml.privacy.calibration.term_checks import require_meaningful, stated
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.plan import Plan
from crowdml.privacy.releases import ModelBounds, Releases
from crowdml.privacy.sanitisers.floats import NoNoise
from crowdml.privacy.settings import MODES, PrivacySettings

Mode = Callable[[PrivacySettings, Releases, ModelBounds], Plan]


def no_plan(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    """No noise and no promise."""
    return Plan(
        terms=stated(settings),
        sanitisers=(NoNoise(counts=CountNoise() if releases.counts else None),) * releases.phases,
    )


for _name, _mode in {"sound": sound_plan, "paper": paper_plan, "none": no_plan}.items():
    MODES.add(_name, _mode)


def make_plan(settings: PrivacySettings, releases: Releases, model: ModelBounds = ModelBounds()) -> Plan:  # noqa: B008
    """Work out the plan of a task. Raises `BadInput` where the terms cannot be kept.

    Args:
        settings: The `[privacy]` section.
        releases: What the algorithm releases.
        model: What task and model prove of it.
    """
    mode: Mode = MODES[settings.mode]
    if releases.sends == "nothing":
        return no_plan(settings, releases, model)
    proven = mode is sound_plan and releases.label_epsilon > 0
    if releases.unprotected and mode is not no_plan and not proven:
        in_pieces = ', or "sound" with algorithm.label-epsilon' if releases.sends == "pieces" else ""
        raise BadInput(
            releases.unprotected,
            where="privacy.mode",
            hint=f'mode = "none"{in_pieces}; crowdml audit measures what is given away',
        )
    plan = mode(settings, releases, model)
    if plan.terms.promised:
        limit, chosen = plan.terms.limit, plan.terms.owner_range
        # What a mode promises must mean something, whoever has written it.
        said = {"epsilon": limit.epsilon, "delta": max(limit.delta, plan.terms.delta), "owner_range": chosen}
        require_meaningful(settings.model_copy(update=said))
    return plan
