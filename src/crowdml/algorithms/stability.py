"""Stability of local steps: how far one sample can move what they change.

For a loss that is convex and β-smooth in the parameters (softmax and logistic regression), with rows of bounded norm
and rates η with η(β + λ) ≤ 2, where λ is the regulariser's strength:

1. A step w ↦ w - η·(mean gradient + λw) on any given rows moves no two points apart (Hardt, Recht and Singer 2016,
   lemma 3.7: a gradient step on a convex function whose gradient is (β + λ)-Lipschitz). This holds as well where some
   of the b rows are missing, since the mean is always taken over b.
2. Replacing one of the b rows of a step changes its result by at most 2cη/b, where c bounds one example's gradient.
3. So two devices that start from the same public parameters and differ in one sample are apart, after all steps, by at
   most Σ 2cη/b over the steps that use the sample: once per epoch.

Nothing of this holds for the hinge (a corner is enough to break it, see the tests), for nets, for adaptive rates, or in
other norms; there the bound on the whole message stands. The device takes these steps in double precision, from
parameters of length at most 10⁶ (so that rounding is far below what `SLACK` allows for), and brings every row down to
the norm that the proof assumes.
"""

from __future__ import annotations

from crowdml.core import record
from crowdml.models import Model
from crowdml.privacy.sound import Stability

ROUNDING = 1 + 1e-9
"""η(β + λ) may pass 2 by as much as rounding does: half a million steps of that are within what `SLACK` allows for."""

LONGEST = 1e6
"""Parameters are brought into a ball of this radius first, or their own rounding would show: they are the server's."""


@record
class Steps:
    """What a recipe's local steps are, as far as their stability depends on it.

    Attributes:
        rate: Largest rate; None where the rate is adaptive.
        part: Rows per step.
        epochs: Times a sample is used in a release.
    """

    rate: float | None
    part: int
    epochs: int


def stability(model: Model, row: float | None, regularisation: float, steps: Steps | None) -> Stability | None:
    """Return how far one sample can move a message, or None where nothing is proven."""
    largest, steepest = largest_rate(model, row, regularisation), model.gradient_bound(2, row)
    if steps is None or steps.rate is None or largest is None or steepest is None or row is None:
        return None
    if steps.rate > largest * ROUNDING:
        return None
    return Stability(moved=steps.epochs * 2 * steepest * steps.rate / steps.part, row=row, part=steps.part)


def largest_rate(model: Model, row: float | None, regularisation: float) -> float | None:
    """Return the largest rate whose steps are stable; None where no rate's are."""
    smooth = model.smoothness(row)
    if smooth is None or smooth + regularisation == 0:
        return None
    return 2 / (smooth + regularisation)
