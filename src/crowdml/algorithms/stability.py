"""Stability of local steps: how far one sample can move what they change.

In real numbers. For a loss that is convex and β-smooth in the parameters (softmax, logistic and Huber's regression: one
dense layer), with rows of bounded norm and rates η with η(β + λ) ≤ 2, where λ is the regulariser's strength:

1. A step w ↦ w - η·(mean gradient + λw) on any given rows moves no two points apart (Hardt, Recht and Singer 2016,
   lemma 3.7: a gradient step on a convex function whose gradient is (β + λ)-Lipschitz). This holds as well where some
   of the b rows are missing, since the mean is always taken over b.
2. Replacing one of the b rows of a step changes its result by at most 2cη/b, where c bounds one example's gradient.
3. So two devices that start from the same public parameters and differ in one sample are apart, after all steps, by at
   most Σ 2cη/b over the steps that use the sample, once per epoch: `Stability.moved`.

In double precision. A device's step is a step in real numbers plus an error. If no error is longer than E, two devices
are apart by at most 2E more after each of T steps, so by `Stability.rounding` = 2TE more in all. That is small beside
`moved` only because the walk (`sanitisers.walks.Stable`) keeps u = w - w₀, the difference from the broadcast w₀, and
not w itself: doubles near w are as far apart as 1e-16·‖w‖, however small the rate is; doubles near u become finer with
the rate.

Assumed of NumPy (v = 2⁻⁵³): sums, differences, products, quotients and roots are off by a factor of at most 1 ± v, or
by 2⁻¹⁰²² where they underflow (flushed to zero or not); a sum of n products, in whatever order and with fused
operations or without, is off by at most n·v·1.01 times the sum of their absolute values; exp and tanh are off by at
most 8v relatively (4 units in the last place); and each number of a matrix product depends on its row and its column,
and on shapes, but not on the other columns. Write M for the longest w, U for the longest u, ρ for the longest row (with
a constant 1 where there is a bias), s for the longest slope of the loss, so c = sρ, and κ for its curvature, so
β = κρ². K is the number of outputs, d of features.

a. Outputs. z = fl(fl(W₀x) + fl(Ux)). What fl(W₀x) is off by does not matter: it is the same on both devices where the
   row is, and the loss at any fixed shift plus Ux is as convex and smooth in U as before. fl(Ux), with its bias, is off
   by 1.01·(d + 1)·v·Uρ in L2; the sum by v·‖z‖, ‖z‖ ≤ 1.01·(LONGEST + U)ρ; and the largest output, which a softmax
   subtracts first, adds at most 2√K·v·‖z‖. Together: δ = 1.03·v·ρ·((d + 1)·U + (2√K + 1)(LONGEST + U)).
b. Slope. It is κ-Lipschitz in z, so δ makes it κδ wrong. Exponentials, their sum, quotient and the difference to the
   label add (K + 20)·v at most; tanh, or a clipped residual, less.
c. Mean. Weights, products and sums over b rows are off by 1.01·(b + 2)·v·c; and the slopes' errors count ρ times.
d. Regulariser. λ·fl(w₀ + u) is off by 2.01·v·λM, adding it to the mean by 1.01·v·(c + λM).
e. Step. η is the same number on both devices; multiplying costs 1.01·v·η(c + λM), the difference to u costs v·U.

So E = 1.05·v·(η·(ρ(κδ/v + K + 20) + (b + 4)·c + 4λM) + U). Lengths: a step in real numbers makes w longer by at most ηc
(|1 - ηλ| ≤ 1) and u by η(c + λM). A proof is only given where 2TE ≤ `moved`/10 and a sample's epochs are at most Tb, so
where E ≤ ηc/10, and then by induction M = LONGEST + 1.25·Tηc and U = 1.25·Tη(c + λM), or M + LONGEST where that is
less. Underflow: a proof is only given for rates, rows and regularisers from 1e-90 to 1e90; all lengths above then are
at least 1e-180, and as many times 2⁻¹⁰²² as there are operations vanish in what 1.05 leaves. Every term of E but the
last has the factor η, and so has U: however small the rate, rounding stays the same share of what a sample moves.

The walk sees to it that all this is so, whatever rows, labels and broadcast say. Where the number of steps follows from
the rows that a device has, it may take as many as keep rounding below `SHARE` of `moved`: `Stability.steps`.

Nothing of this holds for the hinge (a corner is enough to break it, see the tests), for nets, for adaptive rates, in
single precision, or in other norms; there the bound on the whole message stands. A simulation walks in single
precision: it states the ε that devices keep, and releases nothing.
"""

from __future__ import annotations

import math

from crowdml.models import Model
from crowdml.privacy.noise.grid import Stability
from crowdml.privacy.releases import Steps
from crowdml.privacy.sanitisers.walks import LONGEST

TOLERANCE = 1 + 1e-9
"""A rate may be written down as much too large; the walk shortens it to where η(β + λ) ≤ 2 is true."""

UNIT = 2.0**-53
"""Half the distance from 1 to the next double."""

SMALLEST, LARGEST = 1e-90, 1e90
"""Rates, rows and regularisers between which nothing underflows or overflows that matters."""

MOST_NUMBERS = 1 << 20
"""Features, outputs, and rows per step, up to which a row's own rounding is below what the walk leaves."""

SHARE, MOST_SHARE = 1e-3, 0.1
"""Rounding as a share of what a sample moves: aimed at where the steps are not counted, and largest that is proven."""

FEWEST_STEPS, MOST_STEPS = 1000, 1 << 20
"""Steps that a proof should allow a device at least, and at most, where they follow from its rows."""


def stability(model: Model, row: float | None, regularisation: float, steps: Steps | None) -> Stability | None:
    """Return how far one sample can move a message, or None where nothing is proven."""
    largest, steepest = largest_rate(model, row, regularisation), model.gradient_bound(2, row)
    if steps is None or not steps.by_walk or steps.rate is None or largest is None or steepest is None or row is None:
        return None
    if steps.rate > largest * TOLERANCE or not _usual(model, row, regularisation, steps):
        return None
    moved = steps.epochs * 2 * steepest * steps.rate / steps.part
    count = steps.count or _countable(model, row, regularisation, steps, SHARE * moved)
    added = rounding(model, row, regularisation, steps, count)
    enough = count >= (1 if steps.count else FEWEST_STEPS) and count * steps.part >= steps.epochs
    if not enough or not added <= MOST_SHARE * moved:
        return None
    return Stability(moved=moved, rounding=added, row=row, part=steps.part, steps=count)


def largest_rate(model: Model, row: float | None, regularisation: float) -> float | None:
    """Return the largest rate whose steps are stable; None where no rate's are."""
    smooth = model.smoothness(row)
    if smooth is None or smooth + regularisation == 0:
        return None
    return 2 / (smooth + regularisation)


def advice(model: Model, row: float | None, regularisation: float, steps: Steps | None) -> str:
    """Say what would make steps stable that are not proven to be; empty where nothing would."""
    largest = largest_rate(model, row, regularisation)
    if largest is None or steps is None or not steps.by_walk:
        return ""
    if steps.rate is None or steps.rate > largest * TOLERANCE:
        return (
            f"with a constant or falling rate of at most {largest:.3g} these steps would be stable, and need less "
            "noise for samples"
        )
    if steps.rate < SMALLEST:
        return f"the smallest rate of which a proof in double precision is known is {SMALLEST:g}"
    return (
        "in real numbers these steps are stable, but rounding is not proven to be small beside what a sample moves: "
        "rows of norm 1, a weaker regulariser, a larger clip, or fewer steps would have a proof"
    )


def rounding(model: Model, row: float, regularisation: float, steps: Steps, count: int) -> float:
    """Return how much farther apart so many steps in double precision take two devices: 2TE as derived above."""
    steepest, curvature, rate = model.gradient_bound(2, row), model.loss.curvature, steps.rate
    if steepest is None or curvature is None or rate is None:
        raise ValueError("nothing is proven of such steps")
    outputs, long = model.loss.width, model.longest_input(2, row)
    parameters = LONGEST + 1.25 * count * rate * steepest
    walked = min(1.25 * count * rate * (steepest + regularisation * parameters), parameters + LONGEST)
    shift = 1.03 * long * ((model.features + 1) * walked + (2 * math.sqrt(outputs) + 1) * (LONGEST + walked))
    gradient = long * (curvature * shift + outputs + 20) + (steps.part + 4) * steepest + 4 * regularisation * parameters
    return 2 * count * 1.05 * UNIT * (rate * gradient + walked)


def _usual(model: Model, row: float, regularisation: float, steps: Steps) -> bool:
    """Tell whether all numbers are such that the argument about rounding holds."""
    sizes = [row, steps.rate or 0.0, *([regularisation] if regularisation else [])]
    counts = (model.features, model.loss.width, steps.part)
    return all(SMALLEST <= size <= LARGEST for size in sizes) and max(counts) <= MOST_NUMBERS


def _countable(model: Model, row: float, regularisation: float, steps: Steps, most: float) -> int:
    """Return the number of steps, a power of two, whose rounding stays below a given length; 0 where none does."""
    count = MOST_STEPS
    while count and not rounding(model, row, regularisation, steps, count) <= most:
        count //= 2
    return count
