"""An attack on stable local steps: can what a device sends be told apart from its neighbour's better than claimed?

Each setting, corners included, gets the neighbours that are farthest apart among several families, and both devices
release many times: the device's own code, with the operating system's entropy. The attacker knows everything but the
coins. It projects a message onto the direction in which the two differ, which is the likelihood ratio of Gaussian
noise, and asks whether that is above a threshold. Threshold and δ are chosen from the plan before anything is drawn,
so one Clopper-Pearson bound for each setting gives a lower bound on ε at δ; all of them hold together at 99 %
(Bonferroni). What is claimed at δ is what the ledger's charge for one release proves.

    python -m tests.privacy.attack_stable --settings 200

prints the settings that came nearest, and two controls that must be caught: half the noise, and steps that are rounded
far from zero.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from scipy import stats

from crowdml.core import NUMPY, Batch, Release, trees
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.models import flatten
from crowdml.privacy.noise.grid import round_checked, to_levels
from crowdml.privacy.sanitisers.walks import Stable
from tests.support.plans import update_of
from tests.support.stable import (
    Bench,
    Given,
    Neighbours,
    Setting,
    candidates,
    integers,
    random_setting,
    started,
    walk_of,
)

CONFIDENCE = 0.99
DELTAS = (1e-5, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.4)


@dataclass(frozen=True)
class Verdict:
    """What an attack found.

    Attributes:
        setting: What was attacked.
        bound: Lower bound on ε.
        claim: ε that is proven at the same δ.
        delta: That δ.
        apart: How far apart the messages were before noise, as a share of the claim.
    """

    setting: Setting
    bound: float
    claim: float
    delta: float
    apart: float

    @property
    def caught(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.claim

    @property
    def share(self) -> float:
        """How near the bound came to the claim, which may be zero where δ is large."""
        return self.bound / self.claim if self.claim else math.inf if self.bound else 0.0


def lower_bound(hits: float, misses: float, trials: int, delta: float, alpha: float) -> float:
    """Return the least ε for which so many hits and false alarms, each of so many trials, are believable.

    P(hit) ≤ e^ε·P(false alarm) + δ; either probability is bounded with confidence 1 - α/2.
    """
    least = stats.beta.ppf(alpha / 2, hits, trials - hits + 1) if hits else 0.0
    most = stats.beta.ppf(1 - alpha / 2, misses + 1, trials - misses) if misses < trials else 1.0
    return max(0.0, math.log((least - delta) / most)) if least > delta else 0.0


def attack(bench: Bench, pair: Neighbours, trials: int, family: int, noise: float = 1.0) -> Verdict:
    """Attack one pair of neighbours, as one of a family of attacks.

    Args:
        bench: The setting.
        pair: The neighbours.
        trials: Releases of each device.
        family: Attacks whose bounds must hold together.
        noise: Factor on the noise, for a control.
    """
    alpha = (1 - CONFIDENCE) / family
    broadcast, (one, other) = pair.broadcast(bench.setting.bias), pair.batches(bench.setting)
    start = started(bench.algorithm, broadcast)
    means = [np.mean([integers(bench.algorithm, start, b, Given(n)) for n in range(8)], axis=0) for b in (one, other)]
    way, middle = means[0] - means[1], (means[0] + means[1]) / 2
    length = float(np.linalg.norm(way))
    if length == 0:
        return Verdict(bench.setting, 0.0, bench.plan.event.promise(DELTAS[0]).epsilon, DELTAS[0], 0.0)
    delta, threshold = _best_test(bench, length, update_of(bench.plan).scale * noise, trials, alpha)
    coins = DeviceCoins()
    hits, misses = (
        int(np.sum((_messages(bench, broadcast, b, trials, coins, noise) - middle) @ way / length > threshold))
        for b in (one, other)
    )
    bound = lower_bound(hits, misses, trials, delta, alpha)
    return Verdict(bench.setting, bound, bench.plan.event.promise(delta).epsilon, delta, length / bench.claim)


def _best_test(bench: Bench, length: float, scale: float, trials: int, alpha: float) -> tuple[float, float]:
    """Choose δ and threshold (from the middle, in levels) where the bound should be most of the claim."""
    distance, tests = length / scale, []
    for at in np.linspace(-0.5, 3, 15) * max(1.0, distance / 4):
        hits, misses = (round(trials * stats.norm.sf(at + sign * distance / 2)) for sign in (-1, 1))
        for delta in DELTAS:
            claim = bench.plan.event.promise(delta).epsilon
            if claim > 0:
                tests.append((lower_bound(hits, misses, trials, delta, alpha) / claim, delta, at * scale))
    return max(tests)[1:]


def _messages(bench: Bench, broadcast: Any, batch: Batch, trials: int, coins: DeviceCoins, noise: float) -> Any:
    """Release many times. The steps need no coins, so they are taken once; rounding and noise are new each time."""
    grid = update_of(bench.plan).grid
    same: Any = Given(7)
    change, _, _ = walk_of(bench.setting).take(broadcast, (), np.int32(1), batch, same)
    levels = to_levels(grid, flatten(change)[None], NUMPY)
    sent = integers(bench.algorithm, started(bench.algorithm, broadcast), batch, same)
    assert (round_checked(grid, levels, same, "grid", NUMPY)[0] == sent).all(), "this is not what a device does"
    plain = round_checked(grid, np.tile(levels, (trials, 1)), coins, "grid", NUMPY)
    algorithm = bench.algorithm
    if noise != 1.0:
        task = bench.setting.task()
        scale = {"noise": update_of(bench.plan).scale * noise}
        algorithm = task.build(NUMPY, task.hyper(task.calibrated) | scale)
    release = Release(update=plain, rows=np.int32(len(batch.mask)))
    return algorithm.last.sanitiser.noise(release, (), coins)[0].update.astype(float)


def worst_pair(bench: Bench, rng: np.random.Generator) -> Neighbours:
    """Return those neighbours of several families that are farthest apart."""
    with np.errstate(all="ignore"):
        return max(candidates(bench.setting, rng), key=bench.apart)


def far_from_zero(
    walk: Stable, parameters: Any, memory: Any, begin: Any, batch: Batch, _coins: Any
) -> tuple[Any, Any, Any]:
    """Take the steps with the parameters themselves as the state, in doubles as they are near them."""
    origin, bounded = walk.near(parameters), walk.bounded(batch)
    here, eta = origin, walk.eta(begin)
    for at in range(0, len(bounded.mask), walk.work.size):
        part = trees.map(lambda leaf, at=at: leaf[at : at + walk.work.size], bounded)
        nothing = trees.map(np.zeros_like, here)
        here = trees.map(lambda old, slope: old - slope * eta, here, walk.gradient(here, nothing, part))
    return trees.map(lambda new, old: new - old, here, origin), memory, np.int32(0)


def rounded_control(trials: int, family: int) -> Verdict:
    """Attack steps of 5.9e-11 beside parameters of 600,000, taken as `far_from_zero` takes them."""
    rows = np.tile([0.9915, math.sqrt(1 - 0.9915**2)], (100, 1))
    rows[-1] = 1, 0
    pair = Neighbours(w=np.array([[6e5, 0.0]]), rows=rows, labels=np.zeros(100, int), row=rows[-1], label=1)
    setting = Setting(kind="logistic", features=2, rate=5.9e-11, clip=1.2e-10, part=100, count=1, epsilon=1.0)
    with mock.patch.object(Stable, "take", far_from_zero):
        return attack(Bench.of(setting), pair, trials, family)


def halved_control(trials: int, family: int) -> Verdict:
    """Attack neighbours as far apart as they can be, with half the noise."""
    bench = Bench.of(Setting(epsilon=4.0).around(0.0))
    return attack(bench, worst_pair(bench, np.random.default_rng(0)), trials, family, noise=0.5)


def attack_family(settings: int, trials: int, seed: int, tell: Callable[[str], object]) -> list[Verdict]:
    """Attack so many settings."""
    rng, found = np.random.default_rng(seed), list[Verdict]()
    while len(found) < settings:
        bench = Bench.of(random_setting(rng))
        if update_of(bench.plan).stable is None:
            continue  # the bound on the whole message stands there: another proof, and another test
        found.append(attack(bench, worst_pair(bench, rng), trials, settings))
        if len(found) % 20 == 0:
            nearest = max(verdict.share for verdict in found)
            refuted = sum(verdict.caught for verdict in found)
            tell(f"{len(found)} of {settings}: {refuted} refuted, nearest {nearest:.2f}")
    return found


def main() -> None:
    """Attack, and print what was found; end with 1 where a claim was refuted or a control was not caught."""
    parser = argparse.ArgumentParser(description="Attack stable local steps.")
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    found = attack_family(wanted.settings, wanted.trials, wanted.seed, print)
    shares = sorted((verdict.share for verdict in found), reverse=True)
    apart = [verdict.apart for verdict in found]
    print(
        f"{len(found)} settings, {wanted.trials} releases of each device: {sum(verdict.caught for verdict in found)} "
        f"claims refuted; the nearest bound is {shares[0]:.2f} of its claim, the median {np.median(shares):.2f}; "
        f"messages were {max(apart):.3f} of the sensitivity apart at most, {np.median(apart):.3f} in the median"
    )
    for verdict in sorted(found, key=lambda verdict: -verdict.share)[:5]:
        claim = f"{verdict.claim:.2f} is claimed at δ = {verdict.delta:g}"
        print(f"  ε ≥ {verdict.bound:.2f} where {claim}: {verdict.setting}")
    controls = {"half the noise": halved_control, "rounded far from zero": rounded_control}
    caught = {name: control(wanted.trials, wanted.settings) for name, control in controls.items()}
    for name, verdict in caught.items():
        print(f"control, {name}: ε ≥ {verdict.bound:.2f} where {verdict.claim:.2f} is claimed at δ = {verdict.delta:g}")
    sys.exit(any(verdict.caught for verdict in found) or not all(verdict.caught for verdict in caught.values()))


if __name__ == "__main__":
    main()
