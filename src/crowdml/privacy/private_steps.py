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
may do so, a device may not (`sound_plan` refuses it).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

from crowdml.core import BadInput, record
from crowdml.privacy.settings import PrivacySettings

Sampling = Literal["poisson", "fixed"]
PRECISION = 1e-3
"""Relative precision to which the noise is worked out; it is never below what is needed."""
ORDERS = (*range(2, 33), 40, 48, 64, 96, 128, 256, 512)
"""Orders of the Rényi divergences: whole ones, at which they are known exactly and quickly."""
LEAST_MULTIPLIER, LARGEST_MULTIPLIER = 0.25, 4096.0


@record
class LocalSteps:
    """What a recipe's local steps are.

    Attributes:
        steps: Steps behind one release.
        batch: Rows that a step takes: exactly, or on average.
    """

    steps: int
    batch: int


@record
class PrivateSteps:
    """Bound, noise and cost of the steps behind a device's releases.

    Guarantee: neighbours as `adjacency` says, for one sample. A step's sum changes by at most `sensitivity` in L2;
    Gaussian noise of standard deviation `noise` is added to every number of it. `epsilon(releases)` is what the steps
    behind so many releases cost together, with the rows of each step chosen as `sampling` says and kept secret.

    Attributes:
        radius: L2 norm that no row's gradient exceeds.
        by_layer: Whether each layer is clipped by itself.
        sampling: How a step takes its rows.
        share: Probability that a row is in a step, or the largest share of a device's rows that a step may take.
        batch: Rows that a step takes: exactly, or on average.
        steps: Steps behind one release.
        releases: Releases that the noise was worked out for.
        multiplier: Standard deviation of the noise, in sensitivities.
        delta: The δ at which ε is stated.
    """

    radius: float
    by_layer: bool
    sampling: Sampling
    share: float
    batch: int
    steps: int
    releases: int
    multiplier: float
    delta: float

    @property
    def sensitivity(self) -> float:
        """Largest change of a step's sum between neighbours."""
        return self.radius * (1 if self.sampling == "poisson" else 2)

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on each number of a step's sum."""
        return self.multiplier * self.sensitivity

    @property
    def adjacency(self) -> str:
        """Which data sets are neighbours."""
        return "add-remove" if self.sampling == "poisson" else "replace"

    @property
    def least_rows(self) -> int:
        """Rows that a device must hold, so that a step takes no larger share of them than is accounted for."""
        return math.ceil(self.batch / self.share * (1 - 1e-9)) if self.sampling == "fixed" else 1

    def epsilon(self, releases: int) -> float:
        """Return what the steps behind so many releases cost one sample, at `delta`."""
        return steps_epsilon(self.sampling, self.multiplier, self.share, self.batch, self.steps * releases, self.delta)


def private_steps(terms: PrivacySettings, own: LocalSteps | None, limit: int | None) -> PrivateSteps:
    """Check the terms and find the least noise that keeps ε over all steps of all releases.

    Args:
        terms: The `[privacy]` section.
        own: The local steps; None where devices take none.
        limit: Releases of one device at most.
    """
    local, epsilon, share, clip, releases = _checked(terms, own, limit)
    multiplier = _least_multiplier(terms.sampling, epsilon, share, local.batch, local.steps * releases, terms.delta)
    return PrivateSteps(
        radius=clip,
        by_layer=terms.clipping == "per-layer",
        sampling=terms.sampling,
        share=share,
        batch=local.batch,
        steps=local.steps,
        releases=releases,
        multiplier=multiplier,
        delta=terms.delta,
    )


def _checked(
    terms: PrivacySettings, own: LocalSteps | None, limit: int | None
) -> tuple[LocalSteps, float, float, float, int]:
    """Refuse what cannot be kept, with what would be right."""
    if own is None or own.steps < 1:
        raise BadInput(
            "there are no local steps to put noise into",
            where="privacy.noise-at",
            hint='use "local-sgd" or "fedavg" with local-steps of at least 1, or noise-at = "message"',
        )
    right = "add-remove" if terms.sampling == "poisson" else "replace"
    if terms.adjacency != right:
        raise BadInput(
            f'sampling = "{terms.sampling}" is accounted for neighbours by "{right}", not by "{terms.adjacency}"',
            where="privacy.adjacency",
            hint=f'adjacency = "{right}"',
        )
    if terms.mechanism != "gaussian":
        raise BadInput("noise in local steps is Gaussian", where="privacy.mechanism", hint='use mechanism = "gaussian"')
    needed = {
        "epsilon": (terms.epsilon, "epsilon = 3.0, the total over the task"),
        "delta": (terms.delta or None, "delta = 1e-5"),
        "clip": (terms.clip, "clip = 1.0, the longest gradient of one row"),
        "sampling-rate": (terms.sampling_rate, "sampling-rate = 0.01, the share of a device's rows that a step takes"),
    }
    for name, (value, hint) in needed.items():
        if value is None:
            raise BadInput("noise in local steps needs this", where=f"privacy.{name}", hint=f"such as {hint}")
    if limit is None:
        raise BadInput(
            "epsilon is a total: over how many releases of one device?",
            where="stop.max-releases",
            hint="such as max-releases = 10",
        )
    assert terms.epsilon and terms.sampling_rate and terms.clip  # noqa: S101  seen to just above
    return own, terms.epsilon, terms.sampling_rate, terms.clip, limit


@functools.lru_cache(maxsize=256)
def steps_epsilon(sampling: Sampling, multiplier: float, share: float, batch: int, steps: int, delta: float) -> float:
    """Return ε of so many steps at δ.

    >>> round(steps_epsilon("poisson", 1.1, 0.01, 100, 1000, 1e-5), 2)
    1.52
    """
    if sampling == "fixed":
        return _by_divergences(sampling, multiplier, share, batch, steps, delta)
    dp = _accounting()
    losses = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    losses.compose(dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(multiplier)), steps)
    return float(losses.get_epsilon(delta))


def _accounting() -> Any:
    """Load dp-accounting, late: it costs a second, and only private steps need it."""
    try:
        import dp_accounting
    except ImportError:
        raise BadInput(
            "accounting for noise in local steps needs dp-accounting",
            where="privacy.noise-at",
            hint="pip install 'crowdml[simulation]'",
        ) from None
    return dp_accounting


def _by_divergences(sampling: Sampling, multiplier: float, share: float, batch: int, steps: int, delta: float) -> float:
    """Return ε by Rényi divergences: valid for both ways of sampling, quick, and looser for Poisson's."""
    dp = _accounting()
    event, relation = dp.GaussianDpEvent(multiplier), dp.NeighboringRelation
    if sampling == "poisson":
        sampled, neighbours = dp.PoissonSampledDpEvent(share, event), relation.ADD_OR_REMOVE_ONE
    else:
        rows = math.ceil(batch / share * (1 - 1e-9))
        sampled, neighbours = dp.SampledWithoutReplacementDpEvent(rows, batch, event), relation.REPLACE_ONE
    accountant = dp.rdp.RdpAccountant(ORDERS, neighboring_relation=neighbours)
    accountant.compose(sampled, steps)
    return float(accountant.get_epsilon(delta))


@functools.lru_cache(maxsize=64)
def _least_multiplier(sampling: Sampling, epsilon: float, share: float, batch: int, steps: int, delta: float) -> float:
    """Return the least noise, in sensitivities, whose ε is at most the given one.

    Divergences are quick and come near; the distribution of losses then needs to be looked at a few times.
    """

    def quick(multiplier: float) -> float:
        return _by_divergences(sampling, multiplier, share, batch, steps, delta)

    near = _solve(quick, epsilon, 1.0, PRECISION if sampling == "fixed" else 0.05)
    if sampling == "fixed":
        return near
    return _solve(
        lambda multiplier: steps_epsilon(sampling, multiplier, share, batch, steps, delta), epsilon, near, PRECISION
    )


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
