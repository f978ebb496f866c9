"""Private steps: noise in every local step instead of on the message (DP-SGD, Abadi et al. 2016), and what it costs.

A step takes some rows at random, shortens each row's gradient, sums, and adds Gaussian noise. Whatever a device makes
of these sums, the change it sends included, is post-processing. So a task costs as much as all its steps together, and
a row that a step did not take costs nothing there: as nobody sees which rows a step took, each costs less.

Two ways to take rows, each with the only accounting that is right for it:

- `poisson`: every row by itself with probability q. Neighbours differ in one row that is there or not (add-remove):
  the sum changes by at most C. Divided by the expected number of rows, so that nothing depends on how many there are.
  Accounted by the privacy loss distribution of the sampled Gaussian mechanism.
- `fixed`: always b rows out of at least b/q, without replacement, drawn anew for every step. Neighbours have one row
  replaced: the sum changes by at most 2C. Accounted by Rényi divergences (Wang, Balle and Kasiviswanathan 2019).

Clipping layer by layer gives each of L layers the radius C/√L: together they are at most C long.

The noise is drawn in floating point, which is no exact Gaussian, and what it is added to is no integer: a simulation
may do so, a device may not. What devices do is `sanitisers.grid_steps`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from crowdml.core import BadInput, record
from crowdml.privacy.calibration.term_checks import require_limit, require_step_noise
from crowdml.privacy.promise import Sampled, Sampling, divergence_epsilon, steps_epsilon
from crowdml.privacy.releases import Steps
from crowdml.privacy.settings import PrivacySettings

PRECISION = 1e-3
"""Relative precision to which the noise is worked out; it is never below what is needed."""
LEAST_MULTIPLIER, LARGEST_MULTIPLIER = 0.25, 4096.0
NEIGHBOURS = {"poisson": "add-remove", "fixed": "replace"}
"""Which data sets are neighbours, by how a step takes its rows."""


@record
class PrivateSteps:
    """Bound, noise and cost of the steps behind a device's releases.

    Guarantee: neighbours as `adjacency` says, for one sample. A step's sum changes by at most `sensitivity` in L2;
    Gaussian noise of standard deviation `noise` is added to every number of it. The rows of each step are
    chosen as `each.sampling` says and kept secret.

    Attributes:
        radius: L2 norm that no row's gradient exceeds.
        by_layer: Whether each layer is clipped by itself.
        each: How a step takes its rows, and its noise.
        steps: Steps behind one release.
        releases: Releases that the noise was worked out for.
    """

    radius: float
    by_layer: bool
    each: Sampled
    steps: int
    releases: int

    @property
    def sensitivity(self) -> float:
        """Largest change of a step's sum between neighbours."""
        return self.radius * (1 if self.each.sampling == "poisson" else 2)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each number of a step's sum."""
        return self.each.multiplier * self.sensitivity

    def epsilon(self, delta: float) -> float:
        """Return the ε of all steps of all releases together."""
        return steps_epsilon(self.each, self.steps * self.releases, delta)

    @property
    def adjacency(self) -> str:
        """Which data sets are neighbours."""
        return NEIGHBOURS[self.each.sampling]


def private_steps(settings: PrivacySettings, local: Steps | None, limit: int | None) -> PrivateSteps:
    """Check the terms and find the least noise that keeps ε over all steps of all releases, unless it is given.

    Args:
        settings: The `[privacy]` section.
        local: The local steps; None where devices take none.
        limit: Releases of one device at most.
    """
    if local is None:
        raise BadInput(
            "there are no local steps to put noise into",
            where="privacy.noise-at",
            hint='use "local-sgd" or "fedavg" with local-steps of at least 1, or noise-at = "message"',
        )
    if local.count is None or local.epochs != 1:
        raise BadInput(
            "noise in steps counts steps, not times through the rows",
            where="algorithm.local-steps",
            hint="such as local-steps = 60, and leave epochs out",
        )
    sampling = _require_terms(settings)
    assert settings.sampling_rate and settings.clip  # noqa: S101  seen to just above
    releases = require_limit(limit)
    step = Sampled(sampling=sampling, multiplier=1.0, share=settings.sampling_rate, batch=local.part)
    if settings.noise_multiplier is not None:
        # Given in clips, as elsewhere, and accounted in sensitivities: replacing a row moves a sum by two clips.
        step = replace(step, multiplier=_in_sensitivities(settings.noise_multiplier, sampling))
    else:
        assert settings.epsilon  # noqa: S101  seen to just above
        step = _with_least_noise(step, local.count * releases, settings.epsilon, settings.delta)
    return PrivateSteps(
        radius=settings.clip,
        by_layer=settings.clipping == "per-layer",
        each=step,
        steps=local.count,
        releases=releases,
    )


def _in_sensitivities(multiplier: float, sampling: str) -> float:
    """Return noise that is given in clips in units of the sensitivity; refuse as little or as much as says nothing."""
    clips = 1 if sampling == "poisson" else 2
    least, most = LEAST_MULTIPLIER * clips, LARGEST_MULTIPLIER * clips
    if not least <= multiplier <= most:
        raise BadInput(
            f"noise of {multiplier:g} clips hides {'nothing' if multiplier < least else 'everything'}",
            where="privacy.noise-multiplier",
            hint=f"from {least:g} to {most:g}, such as 1.0",
        )
    return multiplier / clips


def _require_terms(settings: PrivacySettings) -> Sampling:
    """Refuse terms that cannot be kept, with what would be right; return how a step takes its rows."""
    sampling: Sampling = "fixed" if settings.sampling == "fixed" else "poisson"
    if settings.sampling == "in-turn":
        raise BadInput(
            "the paper's steps take rows at random, and its accounting is theirs",
            where="privacy.sampling",
            hint='"poisson" or "fixed"; mode = "sound" takes rows in turn',
        )
    right = NEIGHBOURS[sampling]
    if settings.adjacency != right:
        raise BadInput(
            f'sampling = "{sampling}" is accounted for neighbours by "{right}", not by "{settings.adjacency}"',
            where="privacy.adjacency",
            hint=f'adjacency = "{right}"',
        )
    require_step_noise(settings)
    if settings.noise_multiplier is not None and settings.epsilon is not None:
        raise BadInput(
            "noise follows either from epsilon or from noise-multiplier",
            where="privacy.noise-multiplier",
            hint="leave one of them out: either follows from the other",
        )
    needed = {
        "epsilon": "epsilon = 3.0, the total over the task",
        "delta": "delta = 1e-5",
        "clip": "clip = 1.0, the longest gradient of one row",
        "sampling_rate": "sampling-rate = 0.01, the share of a device's rows that a step takes",
    }
    for name, hint in needed.items():
        if name == "epsilon" and settings.noise_multiplier is not None:
            continue
        if not getattr(settings, name):
            raise BadInput(
                "noise in local steps needs this", where=f"privacy.{name.replace('_', '-')}", hint=f"such as {hint}"
            )
    return sampling


@functools.lru_cache(maxsize=64)
def _with_least_noise(step: Sampled, steps: int, epsilon: float, delta: float) -> Sampled:
    """Return a step with the least noise whose ε over so many steps is at most the given one.

    Divergences are quick and come near; the distribution of losses then needs to be looked at a few times.
    """

    def by(accounting: Callable[[Sampled, int, float], float]) -> Callable[[float], float]:
        return lambda multiplier: accounting(replace(step, multiplier=multiplier), steps, delta)

    by_chance = step.sampling == "poisson"
    found = _solve(by(divergence_epsilon), epsilon, step.multiplier, 0.05 if by_chance else PRECISION)
    if by_chance:
        found = _solve(by(steps_epsilon), epsilon, found, PRECISION)
    return replace(step, multiplier=found)


def _solve(epsilon_of: Callable[[float], float], target: float, start: float, precision: float) -> float:
    """Find the noise whose ε is the target, or less by a small part of it. ε falls with noise, nearly as a power."""
    low, high = 0.0, math.inf
    guess, before = start, (0.0, 0.0)
    wanted = math.log(target * (1 - precision / 2))
    while guess <= LARGEST_MULTIPLIER:
        found = epsilon_of(guess)
        enough = found <= target and (found >= target * (1 - precision) or guess <= LEAST_MULTIPLIER)
        if enough or high - low < 1e-6 * high:
            return guess if enough else high
        low, high = (guess, high) if found > target else (low, guess)
        at = (math.log(guess), math.log(max(found, 1e-9)))
        slope = (at[1] - before[1]) / (at[0] - before[0]) if before != (0.0, 0.0) and at[0] != before[0] else -1.5
        before = at
        # Never far beyond what is known, and never outside of it.
        step = min(max((wanted - at[1]) / min(slope, -0.2), -1.0), 1.0)
        guess = max(LEAST_MULTIPLIER, math.exp(at[0] + step))
        if not low < guess < high:
            guess = (low + high) / 2
    raise BadInput(
        f"no useful noise keeps ε = {target:g} over so many steps",
        where="privacy.epsilon",
        hint="a larger epsilon, fewer steps, or a smaller sampling-rate",
    )
