"""What the papers promise too much or too little, as examples: the naive formula fails on them, ours holds."""

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Batch, Broadcast, trees
from crowdml.models import MODELS
from crowdml.privacy.noise.laws import Mechanism
from crowdml.privacy.sanitisers.paper import Paper
from crowdml.task import Task, parse
from tests.support.phases import stepped
from tests.support.targets import some_labels

TASK = """
crowdml = 1
name = "counterexample"
[data]
features = 2
labels = ["a", "b", "c"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 4
[privacy]
mode = "paper"
epsilon = 1.0
[crowd]
passes = 5
"""


def gradient(bias: bool, row: list[float], label: int) -> np.ndarray:
    """The gradient of one example at weights that are surely wrong about it."""
    model = MODELS["softmax"](kind="softmax", bias=bias).build(2, some_labels(3), NUMPY)  # type: ignore[call-arg]
    batch = Batch(rows=np.array([row], np.float32), targets=np.array([label]), mask=np.ones(1, np.float32))
    weights = np.zeros((3, 2), np.float32)
    weights[1] = 100 * np.sign(row)
    parameters = ({"w": weights} | ({"b": np.zeros(3, np.float32)} if bias else {}),)
    return np.concatenate(
        [leaf.reshape(-1) for leaf in trees.leaves(model.gradients(parameters, batch).total(batch.mask))]
    )


def test_a_bias_doubles_the_sensitivity_of_theorem_1() -> None:
    """Theorem 1's 4/b is for rows without a constant; with one the mean of b rows moves by up to 8/b."""
    moved = np.abs(gradient(True, [1.0, 0.0], 0) - gradient(True, [-1.0, 0.0], 2)).sum()
    assert moved > 4.0 + 0.5, "the naive bound would hold"
    with_bias = parse(TASK, changes=["model.bias=true"])
    assert moved <= mechanism_of(with_bias).bound.sensitivity == 8.0


def mechanism_of(task: Task) -> Mechanism:
    assert isinstance(task.calibrated.last, Paper)
    return task.calibrated.last.mechanism


def test_the_slope_of_softmax_is_longer_than_one_in_l2() -> None:
    long = float(np.linalg.norm(gradient(False, [1.0, 0.0], 0)))
    assert long > 1.3, "the naive bound of 1 would hold"
    model = MODELS["softmax"](kind="softmax").build(2, some_labels(3), NUMPY)
    bound = model.gradient_bound(2, 1.0)
    assert bound is not None and long <= bound + 1e-6


def test_five_passes_cost_five_times() -> None:
    """The claim is that of one pass: parallel composition over batches ends with the first pass."""
    task = parse(TASK)
    plan = task.calibrated
    assert plan.terms.claim is not None and plan.terms.claim.epsilon == 1.0
    cost = plan.cost(5)
    assert cost is not None and cost.promise(0.0).epsilon == pytest.approx(5.0)


def test_held_out_rows_make_the_mean_more_sensitive() -> None:
    """The mean is over fewer rows, so noise for all b rows would be too little."""
    task = parse(TASK, changes=["algorithm.held-out=0.5"])
    phase = task.build(NUMPY).last

    class Coins:
        """Hold out every second row; noise of exactly one scale."""

        def uniform(self, stage: str, shape: tuple[int, ...]) -> np.ndarray:
            return np.where(np.arange(shape[0]) % 2, 0.1, 0.9).astype(np.float32)

        def laplace(self, stage: str, shape: tuple[int, ...]) -> np.ndarray:
            return np.ones(shape, np.float32)

    batch = Batch(
        rows=np.eye(2, dtype=np.float32)[[0, 1, 0, 1]], targets=np.array([0, 1, 2, 0]), mask=np.ones(4, np.float32)
    )
    broadcast = Broadcast(parameters=task.model_for(NUMPY).zeros())
    release, _ = stepped(phase, broadcast, batch, Coins())  # type: ignore[arg-type]
    check_in, _ = phase.sanitiser.noise(release, (), Coins())  # type: ignore[arg-type]
    added = check_in.update[0]["w"] - release.update[0]["w"]
    assert release.rows == check_in.weight == 2
    np.testing.assert_allclose(added, 4.0 / 2, rtol=1e-6)  # 4/(b' ε) with b' = 2, not 4/(b ε) = 1


def test_label_counts_cost_the_same_for_any_number_of_labels() -> None:
    """Replacing a row changes two counts by one: ε_y in all, not C·ε_y; the error count costs ε_e/2."""
    task = parse(TASK, changes=["privacy.statistics-epsilon=0.6"])
    counts = task.calibrated.last.counts
    assert counts is not None
    epsilon_e, epsilon_y = 0.3, 0.3 / 3
    assert counts.event().pure == pytest.approx(epsilon_e / 2 + epsilon_y)
    assert counts.event().pure < epsilon_e + 3 * epsilon_y, "the paper's own sum"


def test_laplace_noise_on_a_bound_in_l2_needs_the_bound_in_l1() -> None:
    """A row of L2 norm 1 may have an L1 norm of √D: the noise must be made for that."""
    task = parse(TASK, changes=["data.transform=[{ kind = 'norm', order = 2, at-most = 1.0 }]"])
    mechanism = mechanism_of(task)
    assert mechanism.bound.order == 1
    assert mechanism.bound.radius == pytest.approx(2 * np.sqrt(2), rel=1e-5)


def test_add_remove_is_refused_while_the_number_of_rows_travels_in_clear() -> None:
    for mode in ("paper", "sound"):
        with pytest.raises(BadInput, match="travels in clear"):
            parse(TASK, changes=[f"privacy.mode={mode}", "privacy.adjacency=add-remove"])


def test_floating_point_noise_reveals_the_input_and_integers_do_not() -> None:
    """Much of what 0 plus noise can be, 1 plus noise never is: near zero there are numbers that no sum with 1 hits.

    1 + z is a multiple of 2⁻⁵³ for any z between -1.5 and -0.5, so an output near zero with finer bits gives 0 away.
    """
    generator = np.random.default_rng(0)
    seen = 0.0 + generator.laplace(size=100_000)
    near = np.abs(seen) < 0.5
    impossible = np.mod(seen[near] * 2.0**53, 1.0) != 0
    assert impossible.mean() > 0.5, "floating point would hide it"
    reached = 1.0 + (seen[near] - 1.0)
    assert (np.mod(reached * 2.0**53, 1.0) == 0).all()
    integers = generator.integers(-1000, 1000, 20_000)
    assert set((5 + integers).tolist()) & set((6 + integers).tolist()), "on a grid both reach the same outputs"
