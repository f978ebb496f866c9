"""Stable steps: one sample moves the integers of a message by no more than the proof says, where it says anything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.algorithms import Task, parse
from crowdml.core import NUMPY, Batch, trees
from crowdml.privacy import Sound
from crowdml.privacy.sound import sample_sensitivity

FEATURES = 5


def task(
    model: str = 'kind = "softmax"', kind: str = "local-sgd", rate: float = 1.0, clip: float = 1.0, *changes: str
) -> Task:
    own = "local-steps = 4\nlocal-batch = 2" if kind == "local-sgd" else "epochs = 2\nlocal-batch = 3"
    return parse(
        f"""
crowdml = 1
name = "stable"
[data]
features = {FEATURES}
labels = ["a", "b"]
transform = [{{ kind = "norm", order = 2, at-most = 1.0 }}]
[model]
{model}
[algorithm]
kind = "{kind}"
{own}
rate = {{ kind = "constant", c = {rate} }}
[privacy]
mechanism = "gaussian"
epsilon = 8.0
delta = 1e-5
clip = {clip}
max-uses = 10
[stop]
max-releases = 10
""",
        changes=changes,
    )


def sound(of: Task) -> Sound:
    found = of.plan(of.model_for(NUMPY)).sound
    assert found is not None
    return found


class Given:
    """Coins from a seed that answer the same to every asker."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        return np.random.default_rng([self.seed, *stage.encode()]).random(shape).astype(np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
        raise TypeError("a device never draws continuous noise")

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        raise AssertionError("no noise is asked for")

    discrete_gaussian = discrete_laplace

    def retry(self, number: Any) -> Given:
        raise AssertionError("on a fine grid no bounded vector is ever too long")


def change(of: Task, broadcast: Any, batch: Batch, seed: int) -> Any:
    algorithm = of.build(NUMPY)
    told = algorithm.check_out(algorithm.init(Given(0)))
    start = told | {"parameters": broadcast} if isinstance(told, dict) else broadcast
    release, _ = algorithm.device_step(start, algorithm.device_init(), batch, Given(seed))
    return np.concatenate([leaf.ravel().astype(np.int64) for leaf in trees.leaves(release["change"])])


MODELS = {
    "softmax": ('kind = "softmax"', 4.0),
    "softmax-bias": ('kind = "softmax"\nbias = true', 2.0),
    "softmax-regularised": ('kind = "softmax"\nregularisation = 0.5', 2.0),
    "logistic": ('kind = "logistic"', 8.0),
    "logistic-bias": ('kind = "logistic"\nbias = true', 4.0),
}


@settings(deadline=None, max_examples=150)
@given(
    model=st.sampled_from(list(MODELS)),
    kind=st.sampled_from(["local-sgd", "fedavg"]),
    share=st.sampled_from([0.1, 1.0]),
    clip=st.sampled_from([0.1, 1.0, 20.0]),
    spread=st.sampled_from([0.0, 3.0, 1e5, 1e20]),
    real=st.sampled_from([5, 8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_one_sample_moves_the_integers_by_no_more_than_the_proof_says(
    model: str, kind: str, share: float, clip: float, spread: float, real: int, seed: int
) -> None:
    text, largest = MODELS[model]
    of = task(text, kind, share * largest, clip)
    made = sound(of)
    assert made.update.stable is not None
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((real, FEATURES)).astype(np.float32) * 10  # far longer than the proof allows
    labels = rng.integers(0, 2, real).astype(np.int32)
    other_rows, other_labels = rows.copy(), labels.copy()
    other_rows[1], other_labels[1] = -rows[1], 1 - labels[1]
    broadcast = trees.map(
        lambda leaf: (spread * rng.standard_normal(leaf.shape)).astype(np.float32), of.model_for(NUMPY).zeros()
    )

    def line(values: Any) -> Any:
        """Local steps see each row once, epochs twice in any order; the rest is padding."""
        order = np.arange(real) if kind == "local-sgd" else np.concatenate([np.arange(real), np.arange(real)[::-1]])
        width = 8 if kind == "local-sgd" else -(-2 * real // 3) * 3
        padded = np.zeros((width, *values.shape[1:]), values.dtype)
        padded[: len(order)] = values[order]
        return padded

    mask = line(np.ones(real, np.float32))
    one, other = (
        change(of, broadcast, Batch(rows=line(r), labels=line(y), mask=mask), seed)
        for r, y in ((rows, labels), (other_rows, other_labels))
    )
    moved = math.sqrt(float(((one - other) ** 2).sum()))
    assert moved <= sample_sensitivity(made.update.grid, made.update.stable)
    assert (one**2).sum() <= made.update.grid.limit


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("model", ["softmax", "logistic"])
def test_a_sample_that_is_no_number_moves_the_message_no_further(bad: float, model: str) -> None:
    of = task(MODELS[model][0], "local-sgd", 1.0, 20.0)
    made = sound(of)
    rows = np.full((8, FEATURES), 0.3, np.float32)
    other, labels, strange = rows.copy(), np.ones(8, np.int32), np.ones(8, np.int32)
    other[3], strange[3] = bad, 99
    w = of.model_for(NUMPY).zeros()
    one = change(of, w, Batch(rows=rows, labels=labels, mask=np.ones(8, np.float32)), 1)
    two = change(of, w, Batch(rows=other, labels=strange, mask=np.ones(8, np.float32)), 1)
    assert np.linalg.norm(one) > 50  # so there is something to move
    assert np.linalg.norm(one - two) <= sample_sensitivity(made.update.grid, made.update.stable)


@pytest.mark.parametrize("count", [0, -7, 1])
def test_a_server_cannot_make_steps_longer_by_its_counter(count: int) -> None:
    of = task('kind = "softmax"', "local-sgd", 1.0, 20.0, "algorithm.rate={ kind = 'inverse', c = 1.0 }")
    algorithm = of.build(NUMPY)
    batch = Batch(
        rows=np.full((8, FEATURES), 0.3, np.float32), labels=np.ones(8, np.int32), mask=np.ones(8, np.float32)
    )
    start = {"count": np.int32(count), "parameters": of.model_for(NUMPY).zeros()}
    release, _ = algorithm.device_step(start, algorithm.device_init(), batch, Given(1))
    honest, _ = algorithm.device_step(start | {"count": np.int32(1)}, algorithm.device_init(), batch, Given(1))
    np.testing.assert_array_equal(release["change"][0]["w"], honest["change"][0]["w"])


def test_some_samples_move_the_message_as_far_as_the_proof_says() -> None:
    """One of the rows of the last step, about which the model is surely wrong in opposite directions."""
    of = task('kind = "softmax"', "local-sgd", 3.9, 5.0)
    made = sound(of)
    assert made.update.stable is not None
    assert made.update.stable.moved == pytest.approx(2 * math.sqrt(2) * 3.9 / 2)
    w = ({"w": np.zeros((2, FEATURES), np.float32)},)
    w[0]["w"][0, 0], w[0]["w"][1, 1] = 1e4, 1e4
    rows = np.zeros((8, FEATURES), np.float32)
    rows[-1, 0] = 1.0
    other = rows.copy()
    other[-1] = 0.0
    other[-1, 1] = 1.0
    labels, wrong = np.ones(8, np.int32), np.ones(8, np.int32)
    wrong[-1] = 0
    one = change(of, w, Batch(rows=rows, labels=labels, mask=np.ones(8, np.float32)), 1)
    two = change(of, w, Batch(rows=other, labels=wrong, mask=np.ones(8, np.float32)), 1)
    # The two gradients are orthogonal here, so they are √2 and not 2 apart: more than two thirds of the bound.
    assert np.linalg.norm(one - two) > 0.69 * sample_sensitivity(made.update.grid, made.update.stable)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": 'kind = "svm"'}, "the hinge has a corner"),
        ({"model": 'kind = "mlp"\nlayers = [3]'}, "a net is not convex"),
        ({"rate": 4.01}, "the rate is too large"),
        ({"model": 'kind = "softmax"\nregularisation = 0.5', "rate": 2.01}, "the regulariser adds to the curvature"),
        ({"more": "algorithm.rate={ kind = 'adagrad', c = 0.1 }"}, "an adaptive rate looks at the gradients"),
        ({"more": "data.transform=[]"}, "rows have no bound"),
        ({"more": "privacy.mechanism=laplace"}, "steps are stable in L2 only"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_elsewhere_the_bound_on_the_whole_message_stands(changes: dict[str, Any], why: str) -> None:
    more = changes.pop("more", None)
    made = sound(task(**changes) if more is None else task('kind = "softmax"', "local-sgd", 1.0, 1.0, more))
    assert made.update.stable is None, why
    assert made.of_sample == made.of_device(100)
    assert sample_sensitivity(made.update.grid, None) == made.update.grid.sensitivity


def test_a_sample_is_promised_more_for_the_same_noise_and_a_device_what_the_bound_says() -> None:
    stable, whole = sound(task(rate=1.0)), sound(task(rate=4.01))
    grid = stable.update.grid
    # Δ = 2·√2·1/2 against twice the clip, in parts of the clip; the grid's headroom is small.
    assert stable.update.scale * grid.step == pytest.approx(
        whole.update.scale * whole.update.grid.step * math.sqrt(2) / 2, rel=0.05
    )
    assert stable.of_device(8).rho == pytest.approx(2 * stable.of_sample.rho, rel=0.05)
    for own in (stable, whole):
        assert own.event.times(10).promise(1e-5).epsilon <= 8.0 * (1 + 1e-9)
    promised = sound(task('kind = "softmax"', "local-sgd", 1.0, 1.0, "privacy.unit=device"))
    assert promised.event == promised.of_device(8)
    assert promised.of_sample.rho < promised.event.rho / 1.9


@pytest.mark.parametrize(("kind", "times"), [("local-sgd", 2 / 2), ("fedavg", 2 * 2 / 3)])
def test_a_sample_counts_once_for_each_time_it_is_used(kind: str, times: float) -> None:
    stable = sound(task(kind=kind)).update.stable
    assert stable is not None and stable.moved == pytest.approx(math.sqrt(2) * times)


def test_cells_of_a_sweep_are_kept_apart_where_the_proof_ends() -> None:
    """Rates may be traced, but not across the border: the grid is another."""
    one, two, three = task(rate=1.0), task(rate=3.0), task(rate=5.0)
    assert one.structure() == two.structure() != three.structure()
