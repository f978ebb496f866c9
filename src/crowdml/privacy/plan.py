"""Plan: from the terms of a task to bound, noise and cost of everything a device sends.

The plan is one frozen record, so that what is added and what is reported cannot drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from crowdml.core import BadInput, record
from crowdml.privacy.banded import Banded, banded_terms
from crowdml.privacy.calibration import for_owner
from crowdml.privacy.given import GivenNoise, given_noise
from crowdml.privacy.mechanisms import MECHANISMS, Bound, Mechanism, calibrated
from crowdml.privacy.private_steps import PrivateSteps, private_steps
from crowdml.privacy.promise import Promise, Spent
from crowdml.privacy.settings import PrivacySettings
from crowdml.privacy.sound import Sound
from crowdml.privacy.sound_plan import Releases, make_sound

Perturbs = Literal["gradient", "inputs", "nothing"]
"""Where an algorithm puts noise."""


@record
class Statistics:
    """Noise on the error count and the label counts of one release (scale 0: none) and what they cost."""

    error_scale: float = 0.0
    label_scale: float = 0.0
    spent: Spent = Spent()


@record
class Inputs:
    """Noise on rows and labels themselves, once for the whole task, and what it costs.

    Attributes:
        row_scale: Scale of the Laplace noise on each feature.
        keep: Probability that a label stays as it is; otherwise it becomes any other, each as likely.
        spent: Cost for a sample, however often the server uses it afterwards.
    """

    row_scale: float
    keep: float
    spent: Spent


@record
class Plan:
    """How a device sanitises, and what is promised.

    Attributes:
        mode: As in the task file.
        gradient: Bound and noise on the gradient; None in mode `none`.
        statistics: Noise on counts; None where counts are not sent.
        inputs: Noise on rows and labels; None where they are not sent.
        given: Noise of a given size on each message, without any ε; None elsewhere.
        claim: What the paper would claim for the whole task; None where nothing is claimed.
        delta: The δ at which ε is reported.
        sound: Everything about a release in sound mode; None in other modes.
        steps: Bound and noise inside local steps; None where there is none.
        banded: The matrix that correlates the noise of a device's releases; None where it is fresh.
    """

    mode: str
    gradient: Mechanism | None
    statistics: Statistics | None
    inputs: Inputs | None
    claim: Promise | None
    delta: float
    given: GivenNoise | None = None
    sound: Sound | None = None
    steps: PrivateSteps | None = None
    banded: Banded | None = None

    @property
    def promises(self) -> bool:
        """Whether there is noise for which an ε can be stated."""
        return any(own is not None for own in (self.gradient, self.inputs, self.sound, self.steps))

    @property
    def noise(self) -> float:
        """Scale of the noise on what a device sends, in levels in sound mode; 0 where there is none."""
        if self.sound:
            return self.sound.update.scale
        if self.steps:
            return self.steps.noise
        if self.given:
            return self.given.scale
        return self.gradient.noise if self.gradient else 0.0

    @property
    def bounds_rows(self) -> bool:
        """Whether the promise rests on a bound on the gradient of every single row."""
        per_row = self.sound is not None and self.sound.update.grid.per == "example"
        return self.gradient is not None or self.steps is not None or per_row

    @property
    def scales(self) -> dict[str, float]:
        """Scales of all noise by name; a simulation hands in each device's own."""
        if self.sound and self.sound.opening:
            return {"noise": self.noise, "opening_noise": self.sound.opening.scale}
        if self.sound is None or self.statistics is None:
            return {"noise": self.noise}
        counts = {"errors_noise": self.statistics.error_scale, "labels_noise": self.statistics.label_scale}
        return {"noise": self.noise} | counts

    def for_owner(self, epsilon: float) -> Plan:
        """Return the plan of a device whose owner has chosen this ε, within the range of the terms.

        Everything that server and other devices see keeps its shape; only the noise is another.
        """
        if self.sound is None:
            raise BadInput(
                "there is no ε to choose", where="privacy.mode", hint='owners choose where mode = "sound" keeps it'
            )
        return _of_sound(for_owner(self.sound, epsilon), self.delta)

    def spent(self, uses: int) -> Spent:
        """What `uses` releases with fresh noise cost a sample that is in all of them.

        Not in sound mode (see `sound.event`), and not for correlated noise (see `spent_together`).
        """
        if self.sound:
            raise ValueError("a sound plan is accounted by its event")
        if self.banded and uses > 1:
            raise ValueError("correlated releases are accounted together, by their matrix")
        if self.inputs:
            return self.inputs.spent
        each = self.gradient.spent if self.gradient else Spent()
        return (each.plus(self.statistics.spent) if self.statistics else each).times(uses)

    def spent_together(self, sensitivity_squared: float) -> Spent:
        """What all releases cost that together are one Gaussian release of this squared sensitivity."""
        each = self.spent(1)
        return Spent(mu_squared=each.mu_squared * sensitivity_squared)


def make_plan(
    terms: PrivacySettings,
    bound_of: Callable[[int], float | None],
    classes: int,
    counts: bool,
    perturbs: Perturbs = "gradient",
    input_bound: float | None = None,
    size: int = 1,
    releases: Releases | None = None,
    scale: Callable[[float, float], float] | None = None,
) -> Plan:
    """Work out the plan of a task.

    Args:
        terms: The `[privacy]` section.
        bound_of: `bound_of(order)`: the model's own bound on one example's gradient, or None.
        classes: Number of labels.
        counts: Whether the algorithm sends error and label counts.
        perturbs: Where the algorithm puts noise.
        input_bound: Largest L1 norm of a row, or None where nothing is known.
        size: Numbers in a message.
        releases: What the algorithm releases; sound mode and correlated noise need to know.
        scale: `scale(epsilon, delta)`: a paper's own noise scale for sensitivity 1; None: the least that keeps them.
    """
    if terms.mode == "none" or perturbs == "nothing":
        free = Statistics() if counts else None
        return Plan(mode=terms.mode, gradient=None, statistics=free, inputs=None, claim=None, delta=terms.delta)
    if terms.noise_at == "message":
        _check_no_steps(terms)
    if terms.mode == "sound":
        return _of_sound(make_sound(terms, bound_of, counts, releases or Releases()), terms.delta)
    limit = releases.limit if releases else None
    if terms.noise_at == "steps":
        return _steps_plan(terms, releases or Releases())
    if terms.noise_scale is not None and perturbs == "gradient":
        return replace(_given_plan(terms, size), banded=banded_terms(terms, limit))
    _check_paper_terms(terms)
    if perturbs == "inputs":
        return _input_plan(terms, input_bound, classes)
    return replace(_paper_plan(terms, bound_of, classes, counts, scale), banded=banded_terms(terms, limit))


def _of_sound(sound: Sound, delta: float) -> Plan:
    counts = sound.statistics
    return Plan(
        mode="sound",
        gradient=None,
        statistics=Statistics(
            error_scale=counts.error_scale, label_scale=counts.label_scale, spent=Spent(pure=counts.event.pure)
        )
        if counts
        else None,
        inputs=None,
        claim=None,
        delta=delta,
        sound=sound,
    )


def _paper_plan(
    terms: PrivacySettings,
    bound_of: Callable[[int], float | None],
    classes: int,
    counts: bool,
    scale: Callable[[float, float], float] | None,
) -> Plan:
    assert terms.epsilon is not None  # noqa: S101  _check_paper_terms has seen to it
    law = MECHANISMS[terms.mechanism]
    if scale:
        if law.order != 2 or law.pure:
            raise BadInput("this paper adds Gaussian noise", where="privacy.mechanism", hint='use "gaussian"')
        law = replace(law, scale=scale)
    radius = terms.clip or bound_of(law.order)
    if radius == 0.0:
        raise BadInput(
            "every row is zero after these transforms", where="data.transform", hint="scale by another number"
        )
    if radius is None:
        raise BadInput(
            "nothing bounds the gradient of one example",
            where="privacy.clip",
            hint=f"give clip, or end data.transform with a norm of order {law.order} and use a linear model",
        )
    bound = Bound(order=law.order, radius=radius, clipped=terms.clip is not None)
    return Plan(
        mode="paper",
        gradient=calibrated(law, bound, terms.epsilon - terms.statistics_epsilon, terms.delta),
        statistics=_paper_statistics(terms.statistics_epsilon, classes)
        if counts and terms.statistics_epsilon
        else None,
        inputs=None,
        claim=Promise(epsilon=terms.epsilon, delta=0.0 if law.pure else terms.delta),
        delta=terms.delta,
    )


def _steps_plan(terms: PrivacySettings, releases: Releases) -> Plan:
    _check_steps_terms(terms)
    steps = private_steps(terms, releases.local, releases.limit)
    assert terms.epsilon is not None  # noqa: S101  private_steps has seen to it
    claim = Promise(epsilon=terms.epsilon, delta=terms.delta)
    return Plan(mode="paper", gradient=None, statistics=None, inputs=None, claim=claim, delta=terms.delta, steps=steps)


def _given_plan(terms: PrivacySettings, size: int) -> Plan:
    _check_promise(terms)
    given = given_noise(terms, size)
    return Plan(mode="paper", gradient=None, statistics=None, inputs=None, claim=None, delta=0.0, given=given)


def _input_plan(terms: PrivacySettings, input_bound: float | None, classes: int) -> Plan:
    """Crowd-ML 2015, equations (15) and (16), with ε_x = ε_y = ε/2.

    Equation (16) perturbs labels twice as much as needed: keeping a label is e^(ε_y/2) times as likely as any other
    choice, so it really costs ε_y/2.
    """
    assert terms.epsilon is not None  # noqa: S101  _check_paper_terms has seen to it
    if terms.mechanism != "laplace":
        raise BadInput(
            "rows are perturbed by Laplace noise", where="privacy.mechanism", hint='use mechanism = "laplace"'
        )
    if not input_bound:
        raise BadInput(
            "nothing bounds the L1 norm of a row",
            where="data.transform",
            hint='end the transforms with { kind = "norm", order = 1, at-most = 1.0 }',
        )
    epsilon_x = epsilon_y = terms.epsilon / 2
    favour = math.exp(epsilon_y / 2)
    return Plan(
        mode=terms.mode,
        gradient=None,
        statistics=None,
        inputs=Inputs(
            row_scale=2 * input_bound / epsilon_x,
            keep=favour / (favour + classes - 1),
            spent=Spent(pure=epsilon_x + epsilon_y / 2),
        ),
        claim=Promise(epsilon=terms.epsilon),
        delta=terms.delta,
    )


def _paper_statistics(epsilon: float, classes: int) -> Statistics:
    """Crowd-ML 2015, equations (11) and (12), with ε_e = ε/2 and C·ε_y = ε/2.

    Both formulas add twice the noise needed: the error count (sensitivity 1) really costs ε_e/2, and the vector of
    label counts (sensitivity 2 in L1, whatever C is) really costs ε_y.
    """
    error_scale, label_scale = 2.0 / (epsilon / 2), 2.0 / (epsilon / 2 / classes)
    return Statistics(
        error_scale=error_scale, label_scale=label_scale, spent=Spent(pure=1.0 / error_scale + 2.0 / label_scale)
    )


def _check_no_steps(terms: PrivacySettings) -> None:
    """Refuse what has a meaning for noise in local steps only."""
    for name, usual in (("clipping", "flat"), ("sampling", "poisson"), ("sampling_rate", None)):
        if getattr(terms, name) != usual:
            raise BadInput(
                "has no effect on noise that is added to the message",
                where=f"privacy.{name.replace('_', '-')}",
                hint='leave it out, or noise-at = "steps"',
            )


def _check_steps_terms(terms: PrivacySettings) -> None:
    """Refuse what has no meaning for noise in local steps."""
    others = {"noise_scale": None, "noise_factor": None, "noise_bands": None, "noise_sequence": "iid"}
    for name, usual in {**others, "statistics_epsilon": 0.0}.items():
        if getattr(terms, name) != usual:
            raise BadInput(
                "noise in local steps is fresh and follows from epsilon, and no counts are sent",
                where=f"privacy.{name.replace('_', '-')}",
                hint="leave it out",
            )
    _check_terms_of_samples(terms)


def _check_paper_terms(terms: PrivacySettings) -> None:
    law = MECHANISMS[terms.mechanism]
    if terms.epsilon is None:
        raise BadInput("paper mode needs epsilon", where="privacy.epsilon", hint="such as epsilon = 10.0")
    if law.integer:
        raise BadInput(
            f'"{law.name}" perturbs counts, not gradients',
            where="privacy.mechanism",
            hint='use "laplace" or "gaussian"',
        )
    if not law.pure and terms.delta == 0:
        raise BadInput(f'"{law.name}" needs delta above zero', where="privacy.delta", hint="such as delta = 1e-5")
    if terms.statistics_epsilon >= terms.epsilon:
        raise BadInput(
            f"statistics-epsilon = {terms.statistics_epsilon} leaves nothing of epsilon = {terms.epsilon}",
            where="privacy.statistics-epsilon",
            hint="it is a part of epsilon: make it smaller",
        )
    for name, usual in (("noise_scale", (None,)), ("noise_factor", (None,)), ("noise_sequence", ("iid", "banded"))):
        if getattr(terms, name) not in usual:
            raise BadInput(
                "noise is worked out from epsilon here", where=f"privacy.{name.replace('_', '-')}", hint="leave it out"
            )
    _check_promise(terms)


def _check_promise(terms: PrivacySettings) -> None:
    _check_terms_of_samples(terms)
    if terms.adjacency == "add-remove":
        raise BadInput(
            "the number of samples travels in clear, so add-remove is not protected",
            where="privacy.adjacency",
            hint='use adjacency = "replace"',
        )


def _check_terms_of_samples(terms: PrivacySettings) -> None:
    if terms.unit == "device":
        raise BadInput(
            "the paper's promise is about one sample",
            where="privacy.unit",
            hint='use unit = "sample"; results show what it adds up to for a device as well',
        )
    for name in ("max_uses", "owner_range", "units"):
        if getattr(terms, name) is not None:
            raise BadInput(
                "only sound mode can keep this", where=f"privacy.{name.replace('_', '-')}", hint="leave it out"
            )
