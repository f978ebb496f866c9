"""Sound messages of every recipe: neighbours move the integers by no more than the plan says, and the noise is there.

Everything goes through real task files and the real device half; the coins are the same on both sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.algorithms import Algorithm
from crowdml.core import NUMPY, Batch, Release, trees
from crowdml.task import Task, parse
from tests.support.phases import stepped
from tests.support.plans import update_of

FEATURES = 5
FORMS = {
    "crowd-sgd": "kind = 'crowd-sgd'",
    "no steps": "kind = 'local-sgd', local-steps = 0, rate = { kind = 'constant', c = 5.0 }",
    "steps": "kind = 'local-sgd', local-steps = 4, local-batch = 2, server-batch = 2, "
    "rate = { kind = 'constant', c = 100.0 }",
    "adagrad": "kind = 'local-sgd', local-steps = 4, local-batch = 2, "
    "rate = { kind = 'adagrad', c = 1.0, counter = 'local-steps' }",
    "rmsprop": "kind = 'fedavg', epochs = 2, local-batch = 2, rate = { kind = 'rmsprop', c = 1.0 }",
    "fedavg": "kind = 'fedavg', epochs = 2, local-batch = 2, rate = { kind = 'constant', c = 3.0 }",
    "fedsgd": "kind = 'fedsgd'",
}
MODELS = {
    "softmax": 'kind = "softmax"\nregularisation = 0.1',
    "hinge": 'kind = "svm"',
    "net": 'kind = "mlp"\nlayers = [4]\ntop = "squared"',
}


def task(form: str, model: str, unit: str, mechanism: str, clip: float) -> Task:
    return parse(
        f"""
crowdml = 1
name = "kept"
[data]
features = {FEATURES}
labels = ["a", "b"]
[model]
{MODELS[model]}
[algorithm]
kind = "crowd-sgd"
[privacy]
unit = "{unit}"
mechanism = "{mechanism}"
epsilon = 3.0
delta = 1e-5
clip = {clip}
max-uses = 10
[stop]
max-releases = 10
""",
        changes=[f"algorithm={{ {FORMS[form]} }}"],
    )


class Given:
    """Coins from a seed that answer the same to every asker; noise is one number, and its scale is noted."""

    def __init__(self, seed: int, noise: int = 0, attempt: int = 0) -> None:
        self.seed, self.noise, self.attempt = seed, noise, attempt
        self.scales: dict[str, float] = {}

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng([self.seed, self.attempt, *stage.encode()]).random(shape).astype(np.float32)

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        self.scales[stage] = scale
        return np.full(shape, self.noise, np.int32)

    rounded_gaussian = discrete_laplace

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
        raise TypeError("a device never draws continuous noise")

    gaussian = laplace

    def retry(self, number: Any) -> Given:
        return Given(self.seed, self.noise, int(number))


def flat(tree: Any) -> Any:
    return np.concatenate([np.asarray(leaf).ravel().astype(np.int64) for leaf in trees.leaves(tree)])


def released(algorithm: Algorithm, batch: Batch, spread: float, seed: int) -> Release:
    """The integers before noise, at parameters far from zero."""
    rng, server = np.random.default_rng(seed), algorithm.last.server
    broadcast = server.check_out(server.init(Given(0)))
    moved = trees.map(
        lambda leaf: (leaf + spread * rng.standard_normal(leaf.shape)).astype(leaf.dtype), broadcast.parameters
    )
    with np.errstate(all="ignore"):  # some of these steps are meant to leave all bounds
        return stepped(algorithm.last, replace(broadcast, parameters=moved), batch, Given(seed))[0]


@settings(deadline=None, max_examples=200)
@given(
    form=st.sampled_from(list(FORMS)),
    model=st.sampled_from(list(MODELS)),
    unit=st.sampled_from(["sample", "device"]),
    mechanism=st.sampled_from(["laplace", "gaussian"]),
    clip=st.sampled_from([0.01, 1.0]),
    spread=st.sampled_from([0.1, 3.0, 1e6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_neighbours_move_the_integers_by_no_more_than_the_plan_says(
    form: str, model: str, unit: str, mechanism: str, clip: float, spread: float, seed: int
) -> None:
    of = task(form, model, unit, mechanism, clip)
    grid = update_of(of.calibrated).grid
    rng = np.random.default_rng(seed)
    rows = (spread * rng.standard_normal((8, FEATURES))).astype(np.float32)
    labels, mask = rng.integers(0, 2, 8).astype(np.int32), (np.arange(8) < 7).astype(np.float32)
    other_rows, other_labels = rows.copy(), labels.copy()
    replaced = slice(2, 3) if unit == "sample" else slice(0, 7)  # one row, or all that a device has
    other_rows[replaced] = spread * rng.standard_normal((8, FEATURES))[replaced]
    other_labels[replaced] = 1 - labels[replaced]
    algorithm = of.build(NUMPY)
    one, other = (
        released(algorithm, Batch(rows=r, targets=y, mask=mask), spread, seed)
        for r, y in ((rows, labels), (other_rows, other_labels))
    )
    moved = flat(one.update) - flat(other.update)
    for found, expected in zip(
        trees.leaves(replace(one, update=())), trees.leaves(replace(other, update=())), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    if grid.order == 1:
        assert np.abs(moved).sum() <= 2 * grid.limit
    else:
        assert (moved**2).sum() <= grid.sensitivity_power
    if grid.per == "release":
        norm = np.abs(flat(one.update)).sum() if grid.order == 1 else (flat(one.update) ** 2).sum()
        assert norm <= grid.limit


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("unit", ["sample", "device"])
def test_padding_is_no_part_of_a_message(form: str, unit: str) -> None:
    """It may repeat a row, which would then count for more than the plan says."""
    algorithm, rng = task(form, "softmax", unit, "gaussian", 0.5).build(NUMPY), np.random.default_rng(4)
    rows, mask = rng.standard_normal((8, FEATURES)).astype(np.float32), (np.arange(8) < 6).astype(np.float32)
    other = rows.copy()
    other[6:] = rows[0]
    one, two = (
        released(algorithm, Batch(rows=given_rows, targets=np.zeros(8, np.int32), mask=mask), 0.1, 5)
        for given_rows in (rows, other)
    )
    for found, expected in zip(trees.leaves(two), trees.leaves(one), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize(("unit", "mechanism"), [("sample", "laplace"), ("device", "gaussian")])
def test_the_noise_added_is_the_noise_charged(form: str, unit: str, mechanism: str) -> None:
    """One draw per coordinate, of the plan's scale, to every integer and nowhere else."""
    of = task(form, "softmax", unit, mechanism, 0.5)
    plan, update = of.calibrated, update_of(of.calibrated)
    algorithm = of.build(NUMPY)
    rng = np.random.default_rng(1)
    batch = Batch(
        rows=rng.standard_normal((8, FEATURES)).astype(np.float32),
        targets=np.zeros(8, np.int32),
        mask=np.ones(8, np.float32),
    )
    release = released(algorithm, batch, 0.1, 5)
    coins = Given(5, noise=7)
    check_in, _ = algorithm.last.sanitiser.noise(release, (), coins)
    assert (flat(check_in.update) - flat(release.update) == 7).all()
    assert int(check_in.weight) == (int(release.rows) if update.grid.per == "example" else 1)
    assert check_in.counts == release.counts == ()
    assert coins.scales == {of.releases.sends: update.scale}
    total = plan.event.times(10).promise(1e-5)
    assert total.epsilon <= 3.0 * (1 + 1e-9)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_some_neighbours_are_as_far_apart_as_the_plan_says(mechanism: str) -> None:
    """A device whose rows all change their label sends nearly the opposite: the factor 2 of replacement is needed."""
    of = task("steps", "softmax", "device", mechanism, 0.01)
    grid = update_of(of.calibrated).grid
    algorithm = of.build(NUMPY)
    rows = np.zeros((8, FEATURES), np.float32)
    rows[:, 0] = 1.0
    sent = [
        released(algorithm, Batch(rows=rows, targets=np.full(8, y, np.int32), mask=np.ones(8, np.float32)), 0.0, 3)
        for y in (0, 1)
    ]
    moved = flat(sent[0].update) - flat(sent[1].update)
    length = np.linalg.norm(moved, grid.order)
    assert 0.97 * 2 * grid.levels < length <= grid.sensitivity
