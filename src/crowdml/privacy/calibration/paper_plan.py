"""Paper mode: a paper's formula to the letter. Simulation only: noise in floating point is no exact draw.

ε is that of each release, or of rows that are sent once; of all steps together where noise goes into local steps. Noise
may also be given by its size, and then no ε can be stated.
"""

from __future__ import annotations

import math
from dataclasses import replace

from crowdml.core import BadInput
from crowdml.privacy.calibration.private_steps import private_steps
from crowdml.privacy.calibration.term_checks import (
    refuse_given,
    refuse_steps,
    require_bound,
    require_gaussian,
    require_parts,
    require_replace,
    stated,
)
from crowdml.privacy.noise.banded import Banded
from crowdml.privacy.noise.counts import CountNoise
from crowdml.privacy.noise.laws import MECHANISMS, Bound, calibrated
from crowdml.privacy.plan import Plan
from crowdml.privacy.promise import Promise
from crowdml.privacy.releases import ModelBounds, Releases
from crowdml.privacy.sanitisers.base import Sanitiser
from crowdml.privacy.sanitisers.correlated import Correlated
from crowdml.privacy.sanitisers.floats import Fixed
from crowdml.privacy.sanitisers.paper import InSteps, Paper, PerturbedInputs
from crowdml.privacy.settings import PrivacySettings


def paper_plan(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    """Check the terms and calibrate."""
    if not releases.published:
        raise BadInput("no paper has this algorithm", where="privacy.mode", hint='use "sound", or "none"')
    refuse_steps(settings)
    if model.shared:
        raise BadInput(
            "secure aggregation adds whole numbers up, and noise of a paper's formula is none",
            where="secure-aggregation.enabled",
            hint='use mode = "sound", or "none"',
        )
    if settings.noise_at == "steps":
        return _in_steps(settings, releases, model)
    if settings.noise_scale is not None and releases.sends != "rows":
        _check_promise(settings)
        fixed = _fixed(settings, settings.noise_scale, model.size)
        return _plan(settings, releases, _correlated(fixed, settings, model), None)
    epsilon = _checked(settings)
    if releases.sends == "rows":
        return _inputs(settings, releases, model, epsilon)
    return _on_message(settings, releases, model, epsilon)


def _plan(settings: PrivacySettings, releases: Releases, sanitiser: Sanitiser, claim: Promise | None) -> Plan:
    unproven = releases.unproven if claim else ""
    terms = stated(settings, rows=releases.rows, claim=claim, unproven=unproven)
    return Plan(terms=terms, sanitisers=(sanitiser,) * releases.phases)


def _correlated(fresh: Paper | Fixed, settings: PrivacySettings, model: ModelBounds) -> Sanitiser:
    """Correlate noise over a device's messages, where the terms say so."""
    bands, releases = settings.noise_bands, model.limit
    if (settings.noise_sequence == "banded") != (bands is not None):
        raise BadInput(
            'noise-sequence = "banded" and noise-bands belong together',
            where="privacy.noise-bands",
            hint="such as noise-bands = 8",
        )
    if bands is None:
        return fresh
    require_gaussian(settings)
    if releases is None:
        raise BadInput(
            "the matrix behind correlated noise has a row for each release of a device: how many?",
            where="stop.max-releases",
            hint="such as max-releases = 20",
        )
    if bands > releases:
        raise BadInput(
            f"{bands} bands do not fit into a matrix for {releases} releases",
            where="privacy.noise-bands",
            hint=f"at most stop.max-releases = {releases}",
        )
    return Correlated(inner=fresh, banded=Banded(bands=bands, releases=releases), counts=fresh.counts)


def _fixed(settings: PrivacySettings, size_of_noise: float, numbers: int) -> Fixed:
    """Make noise whose size is given directly, as a standard deviation: the experiments of Crowd-ML library 2016.

    Without a bound on what is perturbed no ε can be stated for it, and none is.
    """
    if settings.epsilon is not None:
        raise BadInput(
            "noise follows either from epsilon or from noise-scale",
            where="privacy.noise-scale",
            hint="leave one of them out; with noise-scale no ε can be stated",
        )
    refuse_given(settings, ("clip", "delta", "statistics_epsilon"), "has no effect on noise of a given scale")
    if (settings.noise_sequence == "geometric") != (settings.noise_factor is not None):
        raise BadInput(
            'noise-sequence = "geometric" and noise-factor belong together',
            where="privacy.noise-factor",
            hint="such as noise-factor = 0.99",
        )
    law = MECHANISMS[settings.mechanism]
    if law.deviation is None:
        raise BadInput(
            f'"{law.name}" is not given by a standard deviation',
            where="privacy.mechanism",
            hint='use "gaussian", "laplace" or "k-norm"',
        )
    deviation = size_of_noise / (math.sqrt(numbers) if settings.noise_unit == "vector" else 1.0)
    return Fixed(
        law=law,
        scale=deviation / law.deviation(numbers),
        deviation=deviation,
        sequence=settings.noise_sequence,
        factor=settings.noise_factor or 1.0,
    )


def _on_message(settings: PrivacySettings, releases: Releases, model: ModelBounds, epsilon: float) -> Plan:
    """Calibrate noise on a mean of bounded gradients, or on what a paper sends instead."""
    law = MECHANISMS[settings.mechanism]
    if releases.paper_scale:
        if law.order != 2 or law.pure:
            raise BadInput("this paper adds Gaussian noise", where="privacy.mechanism", hint='use "gaussian"')
        law = replace(law, scale=releases.paper_scale)
    proven = model.gradient(law.order)
    radius = settings.clip or (None if proven is None else proven * releases.sensitivity_factor)
    if radius == 0.0:
        raise BadInput(
            "every row is zero after these transforms", where="data.transform", hint="scale by another number"
        )
    bound = Bound(order=law.order, radius=require_bound(radius, law.order), clipped=settings.clip is not None)
    part = settings.statistics_epsilon
    made = Paper(
        mechanism=calibrated(law, bound, epsilon - part, settings.delta),
        counts=_counts(part, settings.label_share, model.classes) if releases.counts and part else None,
    )
    claim = Promise(epsilon=epsilon, delta=0.0 if law.pure else settings.delta)
    return _plan(settings, releases, _correlated(made, settings, model), claim)


def _counts(epsilon: float, label_share: float, classes: int) -> CountNoise:
    """Crowd-ML 2015, equations (11) and (12), with C·ε_y = ε · label_share and ε_e the rest.

    Both formulas add twice the noise needed: the error count (sensitivity 1) really costs ε_e/2, and the vector of
    label counts (sensitivity 2 in L1, whatever C is) really costs ε_y.
    """
    of_labels = epsilon * label_share
    return CountNoise(errors=2.0 / (epsilon - of_labels), spread=2.0 / (of_labels / classes), classes=classes)


def _in_steps(settings: PrivacySettings, releases: Releases, model: ModelBounds) -> Plan:
    """Calibrate noise inside local steps."""
    refuse_given(
        settings,
        ("noise_scale", "noise_factor", "noise_bands", "noise_sequence", "statistics_epsilon"),
        "noise in local steps is fresh and follows from epsilon, and no counts are sent",
    )
    _check_terms_of_samples(settings)
    steps = private_steps(settings, releases.steps, model.limit)
    epsilon = steps.epsilon(settings.delta) if settings.epsilon is None else settings.epsilon
    return _plan(settings, releases, InSteps(steps=steps), Promise(epsilon=epsilon, delta=settings.delta))


def _inputs(settings: PrivacySettings, releases: Releases, model: ModelBounds, epsilon: float) -> Plan:
    """Crowd-ML 2015, equations (15) and (16), with ε_x = ε_y = ε/2.

    Equation (16) perturbs labels twice as much as needed: keeping a label is e^(ε_y/2) times as likely as any other
    choice, so it really costs ε_y/2.
    """
    if settings.mechanism != "laplace":
        raise BadInput(
            "rows are perturbed by Laplace noise", where="privacy.mechanism", hint='use mechanism = "laplace"'
        )
    if not model.row:
        raise BadInput(
            "nothing bounds the L1 norm of a row",
            where="data.transform",
            hint='end the transforms with { kind = "norm", order = 1, at-most = 1.0 }',
        )
    epsilon_x = epsilon_y = epsilon / 2
    favour = math.exp(epsilon_y / 2)
    made = PerturbedInputs(
        row_scale=2 * model.row / epsilon_x,
        keep=favour / (favour + model.classes - 1),
        epsilon=epsilon_x + epsilon_y / 2,
    )
    return _plan(settings, releases, made, Promise(epsilon=epsilon))


def _checked(settings: PrivacySettings) -> float:
    """Refuse terms from which no noise follows; return ε."""
    law = MECHANISMS[settings.mechanism]
    if settings.epsilon is None:
        raise BadInput("paper mode needs epsilon", where="privacy.epsilon", hint="such as epsilon = 10.0")
    if law.integer:
        raise BadInput(
            f'"{law.name}" perturbs counts, not gradients',
            where="privacy.mechanism",
            hint='use "laplace" or "gaussian"',
        )
    require_parts(settings, settings.epsilon, law.pure, "1e-5")
    given = ("noise_scale", "noise_factor", *(() if settings.noise_sequence == "banded" else ("noise_sequence",)))
    refuse_given(settings, given, "noise is worked out from epsilon here")
    _check_promise(settings)
    return settings.epsilon


def _check_promise(settings: PrivacySettings) -> None:
    _check_terms_of_samples(settings)
    require_replace(settings)


def _check_terms_of_samples(settings: PrivacySettings) -> None:
    if settings.unit == "device":
        raise BadInput(
            "the paper's promise is about one sample",
            where="privacy.unit",
            hint='for whole devices (user-level DP-FedAvg) use mode = "sound", unit = "device"; or unit = "sample", of '
            "which results show what it adds up to for a device",
        )
    refuse_given(settings, ("max_uses", "owner_range", "units"), "only sound mode can keep this")
