"""crowd-sgd against formulas written out by hand, with given coins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Algorithm, Counts, parse
from crowdml.core import NUMPY, BadInput, Batch, Ops, trees
from crowdml.protocol import layouts, message
from crowdml.simulation.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)

ROWS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [9.0, 9.0]], np.float32)
LABELS = np.array([0, 1, 1, 0], np.int32)
MASK = np.array([1, 1, 1, 0], np.float32)
WEIGHTS = np.array([[0.5, -0.5], [0.1, 0.2]], np.float32)


def algorithm(ops: Ops, own: str = "", model: str = "", privacy: str = 'mode = "none"') -> Algorithm:
    task = parse(
        f"""
crowdml = 1
name = "by-hand"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "softmax"
{model}
[algorithm]
kind = "crowd-sgd"
{own}
[privacy]
{privacy}
"""
    )
    return task.build(ops)


def batch(ops: Ops) -> Batch:
    return Batch(rows=ops.xp.asarray(ROWS), labels=ops.xp.asarray(LABELS), mask=ops.xp.asarray(MASK))


class Given:
    """Coins with given held-out draws, noise of 1 per coordinate, and count noise of 3."""

    def __init__(self, uniforms: list[float] | None = None) -> None:
        self.uniforms = uniforms
        self.asked: list[str] = []

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        self.asked.append(stage)
        assert self.uniforms is not None and stage == "held-out" and shape == (4,)
        return np.array(self.uniforms, np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
        self.asked.append(stage)
        return np.ones(shape, np.float32)

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        self.asked.append(stage)
        return np.full(shape, 3, np.int32)


def gradients_by_hand() -> Any:
    """One softmax gradient per row, shape (4, 2, 2): (p - e_y) xᵀ."""
    scores = ROWS.astype(float) @ WEIGHTS.astype(float).T
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return (p - np.eye(2)[LABELS])[:, :, None] * ROWS.astype(float)[:, None, :]


def errors_by_hand() -> Any:
    return (ROWS @ WEIGHTS.T).argmax(axis=1) != LABELS


@BOTH
def test_a_device_sends_the_mean_gradient_of_its_real_rows(ops: Ops) -> None:
    made = algorithm(ops)
    release, device = made.device_step(({"w": WEIGHTS},), (), batch(ops), Given())
    np.testing.assert_allclose(release["gradient"][0]["w"], gradients_by_hand()[:3].mean(axis=0), rtol=1e-5, atol=1e-7)
    assert int(release["samples"]) == 3 and release["samples"].dtype == np.int32
    assert device == ()
    counts = {name: np.asarray(value).tolist() for name, value in release["counts"].items()}
    assert counts == {"rows": 3, "counted": 3, "errors": int(errors_by_hand()[:3].sum()), "labels": [1, 2]}


@BOTH
def test_the_regulariser_is_added_once_whatever_the_batch(ops: Ops) -> None:
    made = algorithm(ops, model="regularisation = 0.25\nbias = true")
    parameters = ({"w": WEIGHTS, "b": np.array([0.3, -0.1], np.float32)},)
    plain, _ = algorithm(ops, model="bias = true").device_step(parameters, (), batch(ops), Given())
    release, _ = made.device_step(parameters, (), batch(ops), Given())
    difference = np.asarray(release["gradient"][0]["w"]) - np.asarray(plain["gradient"][0]["w"])
    np.testing.assert_allclose(difference, 0.25 * WEIGHTS, atol=1e-6)
    np.testing.assert_array_equal(release["gradient"][0]["b"], plain["gradient"][0]["b"])


@BOTH
def test_held_out_rows_are_counted_and_do_not_train(ops: Ops) -> None:
    made = algorithm(ops, "held-out = 0.5")
    coins = Given([0.9, 0.1, 0.5, 0.0])  # only the second real row is below one half; the fourth is padding
    release, _ = made.device_step(({"w": WEIGHTS},), (), batch(ops), coins)
    expected = gradients_by_hand()[[0, 2]].mean(axis=0)
    np.testing.assert_allclose(release["gradient"][0]["w"], expected, rtol=1e-5, atol=1e-7)
    assert int(release["samples"]) == 2
    counts = {name: np.asarray(value).tolist() for name, value in release["counts"].items()}
    assert counts == {"rows": 3, "counted": 1, "errors": int(errors_by_hand()[1]), "labels": [1, 2]}


@BOTH
def test_when_every_row_is_held_out_only_the_regulariser_is_sent(ops: Ops) -> None:
    made = algorithm(ops, "held-out = 0.5", model="regularisation = 1.0")
    release, _ = made.device_step(({"w": WEIGHTS},), (), batch(ops), Given([0.0, 0.0, 0.0, 0.0]))
    np.testing.assert_allclose(release["gradient"][0]["w"], WEIGHTS, rtol=1e-6)
    assert int(release["samples"]) == 0 and int(release["counts"]["counted"]) == 3


@BOTH
@pytest.mark.parametrize(("order", "clip"), [(1, 0.795), (2, 0.53)])
def test_each_gradient_is_clipped_in_the_mechanisms_norm_before_the_mean(order: int, clip: float, ops: Ops) -> None:
    mechanism = {1: '"laplace"', 2: '"gaussian"\ndelta = 1e-5'}[order]
    made = algorithm(ops, privacy=f'mode = "paper"\nepsilon = 1.0\nclip = {clip}\nmechanism = {mechanism}')
    release, _ = made.device_step(({"w": WEIGHTS},), (), batch(ops), Given())
    each = gradients_by_hand()[:3]
    norms = np.linalg.norm(each.reshape(3, -1), ord=order, axis=1)
    assert norms.min() < clip < norms.max()
    factors = np.minimum(1, clip / norms)
    expected = (each * factors[:, None, None]).sum(axis=0) / 3
    np.testing.assert_allclose(release["gradient"][0]["w"], expected, rtol=1e-5, atol=1e-7)
    assert "counts" not in release


@BOTH
def test_sanitise_adds_noise_of_the_planned_scale_and_keeps_the_release(ops: Ops) -> None:
    made = algorithm(ops, privacy='mode = "paper"\nepsilon = 5.0\nstatistics-epsilon = 1.0\nclip = 0.6')
    release, _ = made.device_step(({"w": WEIGHTS},), (), batch(ops), Given())
    coins = Given()
    check_in = made.sanitise(release, coins)
    # Laplace: 2 · 0.6 / 4 on the sum of three clipped gradients.
    added = np.asarray(check_in["gradient"][0]["w"]) - np.asarray(release["gradient"][0]["w"])
    np.testing.assert_allclose(added, 2 * 0.6 / 4.0 / 3, rtol=1e-5)
    assert int(check_in["counts"]["errors"]) == int(release["counts"]["errors"]) + 3
    assert np.asarray(check_in["counts"]["labels"]).tolist() == [4, 5]
    assert int(check_in["counts"]["rows"]) == int(check_in["samples"]) == 3
    assert coins.asked == ["gradient/0/w", "counts/errors", "counts/labels"]


def test_in_mode_none_sanitise_changes_nothing_and_asks_for_nothing() -> None:
    made = algorithm(NUMPY)
    release, _ = made.device_step(({"w": WEIGHTS},), (), batch(NUMPY), Given())
    coins = Given()
    check_in = made.sanitise(release, coins)
    assert coins.asked == []
    pairs = zip(trees.leaves(check_in), trees.leaves(release), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


def check_in(ops: Ops, fill: float, errors: int = 1) -> Any:
    return {
        "gradient": ({"w": ops.xp.full((2, 2), fill, dtype="float32")},),
        "samples": ops.xp.int32(3),
        "counts": {
            "rows": ops.xp.int32(4),
            "counted": ops.xp.int32(4),
            "errors": ops.xp.int32(errors),
            "labels": ops.xp.asarray([3, 1], dtype="int32"),
        },
    }


@BOTH
def test_the_server_takes_a_projected_step_at_each_check_in(ops: Ops) -> None:
    made = algorithm(ops, 'rate = { kind = "inverse-sqrt", c = 2.0 }\nradius = 3.0')
    server, row = made.init(Given()), made.row_init()
    np.testing.assert_array_equal(made.parameters(server)[0]["w"], np.zeros((2, 2)))
    w = np.zeros((2, 2))
    for t, gradient in enumerate([1.0, -0.5, -4.0], start=1):
        server, row = made.absorb(server, row, check_in(ops, gradient), ops.xp.int32(0))
        server, measured = made.commit(server)
        w = w - 2.0 / math.sqrt(t) * np.full((2, 2), gradient)
        norm = math.sqrt((w**2).sum())
        w = w * min(1.0, 3.0 / norm)
        np.testing.assert_allclose(made.parameters(server)[0]["w"], w, rtol=1e-5)
        np.testing.assert_allclose(made.check_out(server)[0]["w"], w, rtol=1e-5)
        assert int(server.version) == t and server.window == ()
        assert float(measured["estimated_error"]) == pytest.approx(0.25)
    assert math.sqrt((w**2).sum()) == pytest.approx(3.0)  # the ball was reached, so projection was tested
    assert made.totals is not None
    for totals in (made.totals(server), row):
        plain = {name: np.asarray(value).tolist() for name, value in totals.items()}
        assert plain == {"rows": 12, "counted": 12, "errors": 3, "labels": [9, 3]}


@BOTH
@pytest.mark.parametrize(("rule", "expected"), [("accept", 1.0), ("weight", 0.5), ("drop", 1.0)])
def test_a_stale_gradient_is_weighted_and_its_counts_are_not(rule: str, expected: float, ops: Ops) -> None:
    made = algorithm(ops, f'stale = "{rule}"\nrate = {{ kind = "constant", c = 1.0 }}')
    server, row = made.absorb(made.init(Given()), made.row_init(), check_in(ops, 1.0), ops.xp.int32(3))
    server, _ = made.commit(server)
    np.testing.assert_allclose(made.parameters(server)[0]["w"], np.full((2, 2), -expected), rtol=1e-6)
    assert int(row["errors"]) == 1


def test_staleness_limits_reach_the_driver() -> None:
    made = algorithm(NUMPY, 'stale = "accept"\nmax-staleness = 2')
    assert [made.accepts(staleness) for staleness in (0, 2, 3)] == [True, True, False]
    made = algorithm(NUMPY, 'stale = "drop"\nmax-staleness = 2')
    assert [made.accepts(staleness) for staleness in (0, 1)] == [True, False]


def test_what_the_driver_needs_to_know() -> None:
    made = algorithm(NUMPY, "batch = 5\nbuffer = 9")
    assert (made.takes, made.batch, made.buffer, made.always_ready) == ("sums", 5, 9, True)
    assert algorithm(NUMPY, "batch = 5").buffer == 5
    assert made.ready(Counts(received=1, version=7)) and not made.ready(Counts(received=0, version=7))
    assert made.device_init() == ()


def test_without_statistics_nothing_is_counted() -> None:
    for made in (
        algorithm(NUMPY, "statistics = false"),
        algorithm(NUMPY, privacy='mode = "paper"\nepsilon = 1.0\nclip = 1.0'),
    ):
        assert made.totals is None and made.row_init() == ()
        release, _ = made.device_step(({"w": WEIGHTS},), (), batch(NUMPY), Given())
        assert set(release) == {"gradient", "samples"}
        server, row = made.absorb(made.init(Given()), (), made.sanitise(release, Given()), np.int32(0))
        server, measured = made.commit(server)
        assert row == () and server.totals == () and measured == {}


def test_adaptive_rates_keep_their_memory_in_the_state() -> None:
    made = algorithm(NUMPY, 'rate = { kind = "adagrad", c = 1.0 }')
    server, row = made.init(Given()), made.row_init()
    for _ in range(2):
        server, row = made.absorb(server, row, check_in(NUMPY, 2.0), np.int32(0))
        server, _measured = made.commit(server)
    np.testing.assert_allclose(server.rate[0]["w"], np.full((2, 2), 8.0))
    np.testing.assert_allclose(made.parameters(server)[0]["w"], np.full((2, 2), -1 - 1 / math.sqrt(2)), rtol=1e-6)


def test_one_whole_round_through_bytes_is_the_same_as_without() -> None:
    made = algorithm(NUMPY, privacy='mode = "paper"\nepsilon = 5.0\nstatistics-epsilon = 1.0\nclip = 0.6')
    server = made.init(Given())
    release, _ = made.device_step(made.check_out(server), (), batch(NUMPY), Given())
    sent = made.sanitise(release, Given())
    wires = layouts(made.check_out(server), sent)
    received = wires.check_in.decode(wires.check_in.encode(message(0, sent)))["content"]
    directly, _ = made.commit(made.absorb(server, made.row_init(), sent, np.int32(0))[0])
    through, _ = made.commit(made.absorb(server, made.row_init(), received, np.int32(0))[0])
    for one, other in zip(trees.leaves(directly), trees.leaves(through), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)
    wires.check_out.encode(message(1, made.check_out(through)))  # the dtypes of the wire are kept


def test_settings_that_do_not_fit_each_other() -> None:
    with pytest.raises(BadInput, match=r"algorithm: batch = 20 does not fit into buffer = 10"):
        algorithm(NUMPY, "batch = 20\nbuffer = 10")
    for counter in ("device-contacts", "local-steps"):
        with pytest.raises(BadInput, match="device's counter"):
            algorithm(NUMPY, f'rate = {{ kind = "inverse", c = 1.0, counter = "{counter}" }}')
    for counter in ("versions", "check-ins"):
        algorithm(NUMPY, f'rate = {{ kind = "inverse", c = 1.0, counter = "{counter}" }}')
