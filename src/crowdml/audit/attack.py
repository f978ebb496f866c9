"""Attack: guess of which of two worlds a device's releases are, and say what right guesses prove about the promise.

Thresholds come from a pilot whose trials are thrown away; then fresh trials are counted. Beside every attack on the
task stands the same attack on a control, in which the device adds half the noise: where that is not caught, the attack
has too little power to say anything, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from crowdml.audit.bounds import Confidence, Floats, Guesses, best_threshold, count, epsilon_bound, gaussian_bound
from crowdml.audit.seen import Seen
from crowdml.audit.worlds import Sent
from crowdml.core import record
from crowdml.privacy.cost import Cost, Figure, figure
from crowdml.privacy.odds import sorted_parts
from crowdml.privacy.promise import gaussian_epsilon

CLOPPER_PEARSON = "Clopper-Pearson"
ONE_THRESHOLD = "μ at one threshold"
"""How a bound is found."""
PILOT = 0.5
"""Trials of the pilot, for each that counts."""
MOST_DRAWS = 8_000_000
"""Numbers that are drawn for one attack at most; with more there are fewer trials."""
FEWEST = 2_000
"""Trials that an attack has at least."""

Watch = Callable[[float], None]


@record
class Claim:
    """What is attacked, and what is proven of it.

    Attributes:
        what: In words.
        course: The releases in either world, without noise.
        cost: What they cost.
        delta: The δ of the promise.
        counted: Whether counts are looked at beside updates.
    """

    what: str
    course: tuple[Sent, ...]
    cost: Cost
    delta: float
    counted: bool = True

    @property
    def proven(self) -> Figure:
        """The smallest ε that is proven."""
        return figure(self.cost, self.delta)

    @property
    def ideal(self) -> float | None:
        """The ε of Gaussian noise of the same strength, where less is proven of the noise than that.

        Of a secure sum Rényi divergences are proven, at every order no more than those of Gaussian noise with μ² = 2ρ;
        the step from them to ε at δ gives something away.
        """
        known = sorted_parts(self.cost)
        return gaussian_epsilon(math.sqrt(2 * known.rho), self.delta) if self.is_gaussian and known.rho else None

    @property
    def is_gaussian(self) -> bool:
        """Whether all noise that is looked at is Gaussian, or as good as that."""
        known = sorted_parts(self.cost)
        return not known.pure and bool(known.mu or known.rho)

    @property
    def methods(self) -> tuple[str, ...]:
        """The bounds that are stated."""
        return (ONE_THRESHOLD, CLOPPER_PEARSON) if self.is_gaussian else (CLOPPER_PEARSON,)

    @property
    def numbers(self) -> int:
        """Numbers that are drawn for one trial in one world."""
        return sum(sent.numbers for sent in self.course)


@record
class Finding:
    """What one bound on one claim came to.

    Attributes:
        what: What was attacked.
        method: How the bound is found.
        trials: Trials in each world.
        guesses: What was counted.
        proven: The ε that is proven, its δ, and by what.
        bound: The lower bound on ε at that δ.
        control: The same bound where the device adds half the noise; None where that was not tried.
        ideal: The ε of Gaussian noise of the same strength, where the proof gives something away; None elsewhere.
    """

    what: str
    method: str
    trials: int
    guesses: Guesses
    proven: Figure
    bound: float
    control: float | None = None
    ideal: float | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing was found against the promise."""
        return self.bound <= self.proven.epsilon

    @property
    def share(self) -> float:
        """The bound as a share of the claim: how near the attack came."""
        return self.bound / self.proven.epsilon if self.proven.epsilon else math.inf

    @property
    def is_powerful(self) -> bool:
        """Whether half the noise was, or would have been, found out."""
        return self.control is not None and self.control > self.proven.epsilon


def attack(claim: Claim, trials: int, confidence: Confidence, *, control: bool = True, watch: Watch) -> list[Finding]:
    """Attack one claim by all its methods, and the control beside it.

    Args:
        claim: What is attacked.
        trials: Trials in each world.
        confidence: Of all bounds together; those on controls are not among them, as they are no statements.
        control: Whether the control is attacked, too.
        watch: Called with the share that is done.
    """
    possible = int(MOST_DRAWS / (2 * (1 + PILOT) * (1 + control) * max(1, claim.numbers)))
    trials = min(trials, max(FEWEST, possible))
    real = _bounds(claim, [sent.seen for sent in claim.course], trials, confidence)
    watch(0.5 if control else 1.0)
    planted = _bounds(claim, [sent.seen.weakened() for sent in claim.course], trials, confidence) if control else {}
    watch(1.0)
    return [
        Finding(
            what=claim.what,
            method=method,
            trials=trials,
            guesses=real[method][0],
            proven=claim.proven,
            bound=real[method][1],
            control=planted[method][1] if control else None,
            ideal=claim.ideal,
        )
        for method in claim.methods
    ]


def _bounds(claim: Claim, by: Sequence[Seen], trials: int, confidence: Confidence) -> dict[str, tuple[Guesses, float]]:
    """Choose thresholds by a pilot, and count fresh trials."""
    pilot, counted = (
        tuple(_statistic(claim, by, world, number) for world in (0, 1))
        for number in (max(500, int(PILOT * trials)), trials)
    )
    delta, found = claim.proven.delta, {}
    for method in claim.methods:
        if method == ONE_THRESHOLD:
            # Where both worlds are equally likely; for guesses that are right most often there is no better one.
            guesses = count(0.0, counted[0], counted[1])
            found[method] = guesses, gaussian_bound(guesses, delta, confidence.error)
        else:
            threshold = best_threshold(pilot[0], pilot[1], trials, delta, confidence.error)
            guesses = count(threshold, counted[0], counted[1])
            found[method] = guesses, epsilon_bound(guesses, delta, confidence.error)
    return found


def _statistic(claim: Claim, by: Sequence[Seen], world: int, trials: int) -> Floats:
    """Add up the log-likelihood ratios of all releases of a course."""
    coins = by[0].coins()
    total = np.zeros(trials)
    for sent, seen in zip(claim.course, by, strict=True):
        total += sent.statistic(world, trials, coins, seen, claim.counted)
    return total
