"""One contract for every registered noise law: what is drawn is what is paid for.

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
from crowdml.privacy import MECHANISMS, Cost
from crowdml.privacy.cost import Gaussian, Pure
from crowdml.privacy.noise.grid import GridMechanism, make_grid
from crowdml.privacy.noise.laws import LAWS, SOUND_LAWS, SUM_LAWS, Bound, Mechanism, NoiseLaw
from crowdml.privacy.noise.response import RandomisedResponse
from crowdml.privacy.noise.samplers import OsWords
from crowdml.privacy.noise.shares import Shared
from crowdml.privacy.promise import gaussian_delta
from crowdml.simulation.engine.hash_coins import HashCoins

EVERY = pytest.mark.parametrize("name", list(MECHANISMS))


def drawn(law: NoiseLaw, scale: float, count: int, seed: int) -> Any:
    """Draw so many numbers of noise, each as a message of its own where the law asks for that."""
    coins = HashCoins(np.array([seed, 77], np.uint32), 1, NUMPY)
    if not law.whole:
        return law.draw(coins, "contract", scale, (count,)).astype(float)
    numbered = (HashCoins(np.array([seed, 77], np.uint32), at, NUMPY) for at in range(count))
    return np.array([law.draw(coins, "contract", scale, (1,))[0] for coins in numbered], float)


def attacked(noise: Any, epsilon: float, width: float) -> tuple[float, float]:
    """Return a lower estimate of δ at ε for neighbours 0 and 1, and its standard deviation."""
    here, there = noise[0::2], noise[1::2] + 1.0
    cells = [np.floor(draws / width).astype(int) for draws in (here, there)]
    least = min(cell.min() for cell in cells)
    size = max(cell.max() for cell in cells) - least + 1
    half = len(here) // 2
    p1, p2, q1, q2 = (
        np.bincount(part - least, minlength=size) / half
        for cell in cells
        for part in (cell[:half], cell[half : 2 * half])
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
    cost = law.cost(scale)
    count = 8_000 if law.whole else 2_000_000
    noise = drawn(law, scale, count, seed=int(epsilon * 10))
    width = 1.0 if law.integer else scale / 4
    exact = _delta(cost, epsilon)
    found, deviation = attacked(noise, epsilon, width)
    assert found <= exact + 5 * deviation + 1e-9
    # Less ε than was paid for is disproved: the noise is not more than the cost says, within a third.
    paid = cost.promise(delta).epsilon
    lower, deviation = attacked(noise, paid / 3, width)
    assert lower > 5 * deviation


def _delta(cost: Cost, epsilon: float) -> float:
    ((happened, _),) = cost.events
    if isinstance(happened, Gaussian):
        return gaussian_delta(math.sqrt(happened.mu_squared), epsilon)
    assert isinstance(happened, Pure)
    # A pure release of ε₀ is at worst randomised response.
    pure = happened.epsilon
    return max(0.0, (math.exp(pure) - math.exp(epsilon)) / (1 + math.exp(pure)))


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_planted_bugs_are_found(name: str, factor: float) -> None:
    """No noise, half of it, and a fifth less than was paid for: each exceeds what its cost allows."""
    law = MECHANISMS[name]
    delta = 0.0 if law.pure else 0.02
    scale = law.scale(0.7, delta)
    noise = drawn(law, scale * factor, 2_000_000, seed=3)
    found, deviation = attacked(noise, 0.7, scale / 4)
    assert found > _delta(law.cost(scale), 0.7) + 5 * deviation


@pytest.mark.parametrize("name", list(SOUND_LAWS))
@pytest.mark.parametrize("scale", [12.0, 700.0625, 4141.0])
def test_a_release_on_the_grid_costs_what_its_law_says(name: str, scale: float) -> None:
    """The exact cost of sound mode and the cost of the law are two ways to the same number."""
    law = SOUND_LAWS[name]
    made = GridMechanism(grid=make_grid(law.order, 640, 1.0, "example"), law=law, scale=scale)
    same = law.cost(scale / made.grid.sensitivity).event()
    assert made.event.rho == pytest.approx(same.rho, rel=1e-12)
    assert made.event.pure == pytest.approx(same.pure, rel=1e-12)


@pytest.mark.parametrize("name", [law.name for law in MECHANISMS.values() if law.integer])
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
        GridMechanism(grid=grid, law=SOUND_LAWS["gaussian"], scale=64.0),
        GridMechanism(grid=grid, law=LAWS["skellam"], scale=8.0, shared=Shared(law=SUM_LAWS["skellam"], survivors=3)),
        RandomisedResponse(classes=3, keep=Fraction(1, 2)),
    ]
    for made in every:
        assert dataclasses.is_dataclass(made)
        for field in dataclasses.fields(made):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(made, field.name, None)
        # The cost is worked out from the fields; nobody can set it apart from them.
        cost = "cost" if isinstance(made, Mechanism) else "event"
        assert isinstance(getattr(type(made), cost), property)
    assert RandomisedResponse(classes=3, keep=Fraction(1, 2)).answer(OsWords(), np.array([1])).shape == (1,)
