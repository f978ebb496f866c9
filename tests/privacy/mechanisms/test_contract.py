"""One contract for every registered mechanism: what is drawn is what is paid for.

A law is a record of its scale, its draws and its cost. If one of them changed alone, the promise would be false. So the
draws themselves are attacked: neighbours are 0 and 1, sensitivity is 1, and the best set of outcomes is chosen on one
half of the draws and judged on the other.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY
from crowdml.device import DeviceCoins
from crowdml.privacy import MECHANISMS, Event
from crowdml.privacy.grid import make_grid
from crowdml.privacy.mechanisms import SUM_LAWS, Bound, Mechanism, NoiseLaw, RandomisedResponse, SumMechanism
from crowdml.privacy.promise import gaussian_delta
from crowdml.privacy.samplers import OsWords
from crowdml.privacy.sound import SOUND_LAWS, SoundMechanism
from crowdml.simulation.coins import HashCoins

EVERY = pytest.mark.parametrize("name", list(MECHANISMS))


def drawn(law: NoiseLaw, scale: float, count: int, seed: int) -> Any:
    """Draw so many numbers of noise, each as a message of its own where the law asks for that."""
    coins = HashCoins(np.array([seed, 77], np.uint32), 1, NUMPY)
    if not law.whole:
        return law.draw(coins, "contract", scale, (count,)).astype(float)
    numbered = (HashCoins(np.array([seed, 77], np.uint32), at, NUMPY) for at in range(count))
    return np.array([law.draw(own, "contract", scale, (1,))[0] for own in numbered], float)


def attacked(noise: Any, epsilon: float, width: float) -> tuple[float, float]:
    """Return a lower estimate of δ at ε for neighbours 0 and 1, and its standard deviation."""
    here, there = noise[0::2], noise[1::2] + 1.0
    cells = [np.floor(own / width).astype(int) for own in (here, there)]
    least = min(own.min() for own in cells)
    size = max(own.max() for own in cells) - least + 1
    half = len(here) // 2
    p1, p2, q1, q2 = (
        np.bincount(own - least, minlength=size) / half
        for cell in cells
        for own in (cell[:half], cell[half : 2 * half])
    )
    best = p1 > math.exp(epsilon) * q1
    seen, other = p2[best].sum(), q2[best].sum()
    deviation = math.sqrt((seen * (1 - seen) + math.exp(2 * epsilon) * other * (1 - other)) / half)
    return float(seen - math.exp(epsilon) * other), deviation


@EVERY
@pytest.mark.parametrize("epsilon", [0.6, 1.0])
def test_what_is_drawn_is_what_is_paid_for(name: str, epsilon: float) -> None:
    """False alarm: 5 deviations, 1 in 3 million each. Too little noise by a fifth is found, and so is far too much."""
    law = MECHANISMS[name]
    delta = 0.0 if law.pure else 0.02
    scale = law.scale(epsilon, delta) if not law.integer else max(1.0, math.ceil(law.scale(epsilon, delta)))
    spent = law.cost(scale)
    count = 8_000 if law.whole else 2_000_000
    noise = drawn(law, scale, count, seed=int(epsilon * 10))
    width = 1.0 if law.integer else scale / 4
    exact = _delta(spent.pure, spent.mu_squared, epsilon)
    found, deviation = attacked(noise, epsilon, width)
    assert found <= exact + 5 * deviation + 1e-9
    # Less ε than was paid for is disproved: the noise is not more than the cost says, within a third.
    cost = spent.promise(0.02).epsilon
    lower, deviation = attacked(noise, cost / 3, width)
    assert lower > 5 * deviation


def _delta(pure: float, mu_squared: float, epsilon: float) -> float:
    if mu_squared:
        return gaussian_delta(math.sqrt(mu_squared), epsilon)
    # A pure release of ε₀ is at worst randomised response.
    return max(0.0, (math.exp(pure) - math.exp(epsilon)) / (1 + math.exp(pure)))


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_planted_bugs_are_found(name: str, factor: float) -> None:
    """No noise, half of it, and a fifth less than was paid for: each exceeds what its cost allows."""
    law = MECHANISMS[name]
    delta = 0.0 if law.pure else 0.02
    scale = law.scale(0.7, delta)
    noise = drawn(law, scale * factor, 2_000_000, seed=3)
    spent = law.cost(scale)
    found, deviation = attacked(noise, 0.7, scale / 4)
    assert found > _delta(spent.pure, spent.mu_squared, 0.7) + 5 * deviation


@pytest.mark.parametrize("name", list(SOUND_LAWS))
@pytest.mark.parametrize("scale", [12.0, 700.0625, 4141.0])
def test_a_release_on_the_grid_costs_what_its_law_says(name: str, scale: float) -> None:
    """The exact cost of sound mode and the cost of the law are two ways to the same number."""
    law = SOUND_LAWS[name]
    made = SoundMechanism(grid=make_grid(law.order, 640, 1.0, "example"), law=law, scale=scale)
    spent = law.cost(scale / made.grid.sensitivity)
    same = Event.of_pure(spent.pure) if law.pure else Event(pure=math.inf, rho=spent.mu_squared / 2)
    assert made.event.rho == pytest.approx(same.rho, rel=1e-12)
    assert made.event.pure == pytest.approx(same.pure, rel=1e-12)


@pytest.mark.parametrize("name", [own.name for own in MECHANISMS.values() if own.integer])
def test_devices_draw_the_same_law_as_simulations(name: str) -> None:
    """False alarm: two samples of 200,000 compared cell by cell at 5 deviations, below 1 in 10⁴."""
    law = MECHANISMS[name]
    device = law.draw(DeviceCoins(), "contract", 6.5, (200_000,))
    simulated = drawn(law, 6.5, 200_000, seed=5)
    for z in range(-15, 16):
        mine, other = int((device == z).sum()), int((simulated == z).sum())
        assert abs(mine - other) <= 5 * math.sqrt(mine + other + 1)


def test_every_kind_of_mechanism_is_one_frozen_record_with_its_cost() -> None:
    grid = make_grid(2, 9, 1.0, "example")
    every = [
        Mechanism(bound=Bound(order=2, radius=1.0, clipped=True), law=MECHANISMS["gaussian"], noise=4.0),
        SoundMechanism(grid=grid, law=SOUND_LAWS["gaussian"], scale=64.0),
        SumMechanism(grid=grid, law=SUM_LAWS["skellam"], variance=Fraction(64), survivors=3),
        RandomisedResponse(classes=3, keep=Fraction(1, 2)),
    ]
    for made in every:
        assert dataclasses.is_dataclass(made)
        for field in dataclasses.fields(made):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(made, field.name, None)
        # The cost is worked out from the fields; nobody can set it apart from them.
        cost = "spent" if isinstance(made, Mechanism) else "event"
        assert isinstance(getattr(type(made), cost), property)
    assert RandomisedResponse(classes=3, keep=Fraction(1, 2)).answer(OsWords(), np.array([1])).shape == (1,)
