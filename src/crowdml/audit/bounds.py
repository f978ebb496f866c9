"""Bounds: what so many right guesses prove, at a stated confidence.

Somebody says "first" where a statistic is at least a threshold. In the first world that is a hit (probability p), in
the second a false alarm (q). The threshold is fixed before the trials that are counted, so hits and alarms are
binomial, and Clopper and Pearson's bounds p ≥ p₋ and q ≤ q₊ hold together with the stated confidence. From them follow

- **ε at δ** (`epsilon_bound`). A promise (ε, δ) allows p ≤ e^ε q + δ and, for the opposite guess, 1 - q ≤ e^ε (1 - p) +
  δ. So ε is at least ln((p₋ - δ)/q₊) and ln((1 - q₊ - δ)/(1 - p₋)), whatever the mechanism is.
- **μ at one threshold** (`mu_bound`). Noise that is Gaussian of strength μ (sensitivity over standard deviation) lets a
  guess be right with probability (p + 1 - q)/2 ≤ Φ(μ/2) on average over both worlds (Dong, Roth and Su 2022). All right
  guesses together are a sum of independent ones with two probabilities; where it is above its mean its tail is no
  larger than that of a binomial with their mean (Hoeffding 1956, theorem 4). So Clopper and Pearson's lower bound r₋ on
  that mean gives μ ≥ 2Φ⁻¹(r₋), and ε(δ) follows from μ exactly. That says more than the first bound where δ is small:
  no number of trials ever sees an event of probability 1e-6. It refutes the claim "μ", and is stated as ε only for
  comparison: the step from μ to ε(δ) supposes a Gaussian curve.

Many bounds are stated side by side. Each has its share of the error (`Confidence`), so that all of them hold together
with the confidence that is stated (Bonferroni).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, record
from crowdml.privacy.promise import gaussian_epsilon

Floats = npt.NDArray[np.float64]
THRESHOLDS = 400
"""Thresholds that a pilot tries at most."""
FEWEST = 50
"""Times that a pilot must have seen what a threshold rests on: rarer events are flukes."""


@record
class Confidence:
    """How sure all bounds of a family are together.

    Attributes:
        level: Probability that all of them hold.
        family: How many there are.
    """

    level: float
    family: int

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        if not 0.5 <= self.level < 1:
            raise BadInput(
                f"{self.level:g} is no confidence", where="--confidence", hint="between 0.5 and 1, such as 0.99"
            )

    @property
    def error(self) -> float:
        """The share of one bound."""
        return (1 - self.level) / self.family


@record
class Guesses:
    """What was counted at one threshold.

    Attributes:
        hits: How often "first" was said in the first world.
        alarms: How often it was said in the second.
        trials: Trials in each world.
    """

    hits: float
    alarms: float
    trials: float

    def rates(self, error: float) -> tuple[float, float]:
        """Return p₋ and q₊, which hold together but for this error.

        >>> low, high = Guesses(hits=500, alarms=0, trials=1000).rates(0.05)
        >>> round(low, 3), round(high, 4)
        (0.469, 0.0037)
        """
        from scipy.stats import beta

        low = float(beta.ppf(error / 2, self.hits, self.trials - self.hits + 1)) if self.hits else 0.0
        missed = self.trials - self.alarms
        high = float(beta.ppf(1 - error / 2, self.alarms + 1, missed)) if missed > 0 else 1.0
        return low, high


def epsilon_bound(guesses: Guesses, delta: float, error: float) -> float:
    """Return a lower bound on ε at δ that holds but for this error (Clopper and Pearson).

    >>> round(epsilon_bound(Guesses(hits=10_000, alarms=1_000, trials=20_000), 0.0, 0.01), 2)
    2.21
    """
    low, high = guesses.rates(error)
    found = 0.0
    for more, less in ((low, high), (1 - high, 1 - low)):
        if more > delta and more - delta > less:
            found = max(found, math.log((more - delta) / less)) if less > 0 else math.inf
    return found


def mu_bound(guesses: Guesses, error: float) -> float:
    """Return a lower bound on μ of Gaussian noise that holds but for this error.

    >>> round(mu_bound(Guesses(hits=13_829, alarms=6_171, trials=20_000), 0.01), 2)  # Φ(±½): μ = 1
    0.97
    """
    from scipy.special import ndtri
    from scipy.stats import beta

    right, total = guesses.hits + guesses.trials - guesses.alarms, 2 * guesses.trials
    least = float(beta.ppf(error, right, total - right + 1)) if right else 0.0
    return max(0.0, 2 * float(ndtri(least)))


def gaussian_bound(guesses: Guesses, delta: float, error: float) -> float:
    """Return the lower bound on μ as ε at δ."""
    mu = mu_bound(guesses, error)
    if mu == 0:
        return 0.0
    return gaussian_epsilon(mu, delta) if math.isfinite(mu) else math.inf


def count(threshold: float, first: Floats, second: Floats) -> Guesses:
    """Count how often a statistic is at least the threshold, in either world."""
    return Guesses(
        hits=int(np.count_nonzero(first >= threshold)),
        alarms=int(np.count_nonzero(second >= threshold)),
        trials=len(first),
    )


def best_threshold(first: Floats, second: Floats, trials: int, delta: float, error: float) -> float:
    """Return the threshold at which as many trials as are planned would prove most, by trials that do not count.

    Args:
        first: The statistic in the first world, of trials that are thrown away.
        second: The same in the second world.
        trials: Trials that will be counted.
        delta: The δ of the promise.
        error: The share of the bound that is wanted.
    """
    values = np.unique(np.concatenate([first, second]))
    if len(values) > THRESHOLDS:
        values = np.unique(np.quantile(values, np.linspace(0.0, 1.0, THRESHOLDS)))
    # Numbers that are equal but for rounding are one: a statistic often has its largest value with some probability.
    values = values - 1e-9 * np.maximum(1.0, np.abs(values))
    grown = trials / len(first)
    found, best = -1.0, float(values[0])
    ordered_first, ordered_second = np.sort(first), np.sort(second)
    for value in values.tolist():
        hits = len(first) - int(np.searchsorted(ordered_first, value))
        alarms = len(second) - int(np.searchsorted(ordered_second, value))
        if min(hits, len(second) - alarms) < FEWEST:
            continue
        here = epsilon_bound(Guesses(hits=hits * grown, alarms=alarms * grown, trials=trials), delta, error)
        if here > found:
            found, best = here, value
    return best
