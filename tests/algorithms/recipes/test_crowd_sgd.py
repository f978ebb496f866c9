"""crowd-sgd against formulas written out by hand, with given coins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Algorithm, Counts, OnArrival
from crowdml.core import NUMPY, BadInput, Batch, Broadcast, CheckIn, Ops, Tally, trees
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.task import parse
from crowdml.wire import layouts, message
from tests.support.phases import model_of, stepped

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)

ROWS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [9.0, 9.0]], np.float32)
LABELS = np.array([0, 1, 1, 0], np.int32)
MASK = np.array([1, 1, 1, 0], np.float32)
WEIGHTS = np.array([[0.5, -0.5], [0.1, 0.2]], np.float32)
TOLD = Broadcast(parameters=({"w": WEIGHTS},))


def algorithm(ops: Ops, settings: str = "", model: str = "", privacy: str = 'mode = "none"') -> Algorithm:
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
{settings}
[privacy]
{privacy}
"""
    )
    return task.build(ops)


def batch(ops: Ops) -> Batch:
    return Batch(rows=ops.xp.asarray(ROWS), targets=ops.xp.asarray(LABELS), mask=ops.xp.asarray(MASK))


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


def counts_of(tally: Any) -> dict[str, Any]:
    return {name: np.asarray(getattr(tally, name)).tolist() for name in ("rows", "counted", "errors", "spread")}


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
    release, device = stepped(made.last, TOLD, batch(ops), Given())
    np.testing.assert_allclose(release.update[0]["w"], gradients_by_hand()[:3].mean(axis=0), rtol=1e-5, atol=1e-7)
    assert int(release.rows) == 3 and release.rows.dtype == np.int32
    assert device == made.last.begin() and (device.work, device.noise) == ((), ())
    expected = {"rows": 3, "counted": 3, "errors": int(errors_by_hand()[:3].sum()), "spread": [1, 2]}
    assert counts_of(release.counts) == expected


@BOTH
def test_the_regulariser_is_added_once_whatever_the_batch(ops: Ops) -> None:
    made = algorithm(ops, model="regularisation = 0.25\nbias = true")
    told = Broadcast(parameters=({"w": WEIGHTS, "b": np.array([0.3, -0.1], np.float32)},))
    plain, _ = stepped(algorithm(ops, model="bias = true").last, told, batch(ops), Given())
    release, _ = stepped(made.last, told, batch(ops), Given())
    difference = np.asarray(release.update[0]["w"]) - np.asarray(plain.update[0]["w"])
    np.testing.assert_allclose(difference, 0.25 * WEIGHTS, atol=1e-6)
    np.testing.assert_array_equal(release.update[0]["b"], plain.update[0]["b"])


@BOTH
def test_held_out_rows_are_counted_and_do_not_train(ops: Ops) -> None:
    made = algorithm(ops, "held-out = 0.5")
    coins = Given([0.9, 0.1, 0.5, 0.0])  # only the second real row is below one half; the fourth is padding
    release, _ = stepped(made.last, TOLD, batch(ops), coins)
    expected = gradients_by_hand()[[0, 2]].mean(axis=0)
    np.testing.assert_allclose(release.update[0]["w"], expected, rtol=1e-5, atol=1e-7)
    assert int(release.rows) == 2
    expected = {"rows": 3, "counted": 1, "errors": int(errors_by_hand()[1]), "spread": [1, 2]}
    assert counts_of(release.counts) == expected


@BOTH
def test_when_every_row_is_held_out_only_the_regulariser_is_sent(ops: Ops) -> None:
    made = algorithm(ops, "held-out = 0.5", model="regularisation = 1.0")
    release, _ = stepped(made.last, TOLD, batch(ops), Given([0.0, 0.0, 0.0, 0.0]))
    np.testing.assert_allclose(release.update[0]["w"], WEIGHTS, rtol=1e-6)
    assert int(release.rows) == 0 and int(release.counts.counted) == 3


@BOTH
@pytest.mark.parametrize(("order", "clip"), [(1, 0.795), (2, 0.53)])
def test_each_gradient_is_clipped_in_the_mechanisms_norm_before_the_mean(order: int, clip: float, ops: Ops) -> None:
    mechanism = {1: '"laplace"', 2: '"gaussian"\ndelta = 1e-5'}[order]
    made = algorithm(ops, privacy=f'mode = "paper"\nepsilon = 1.0\nclip = {clip}\nmechanism = {mechanism}')
    release, _ = stepped(made.last, TOLD, batch(ops), Given())
    each = gradients_by_hand()[:3]
    norms = np.linalg.norm(each.reshape(3, -1), ord=order, axis=1)
    assert norms.min() < clip < norms.max()
    factors = np.minimum(1, clip / norms)
    expected = (each * factors[:, None, None]).sum(axis=0) / 3
    np.testing.assert_allclose(release.update[0]["w"], expected, rtol=1e-5, atol=1e-7)
    assert release.counts == ()


@BOTH
def test_the_sanitiser_adds_noise_of_the_planned_scale_and_keeps_the_release(ops: Ops) -> None:
    made = algorithm(ops, privacy='mode = "paper"\nepsilon = 5.0\nstatistics-epsilon = 1.0\nclip = 0.6')
    release, device = stepped(made.last, TOLD, batch(ops), Given())
    coins = Given()
    check_in, _ = made.last.finish(TOLD, release, device, coins)
    # Laplace: 2 · 0.6 / 4 on the sum of three clipped gradients.
    added = np.asarray(check_in.update[0]["w"]) - np.asarray(release.update[0]["w"])
    np.testing.assert_allclose(added, 2 * 0.6 / 4.0 / 3, rtol=1e-5)
    assert int(check_in.counts.errors) == int(release.counts.errors) + 3
    assert np.asarray(check_in.counts.spread).tolist() == [4, 5]
    assert int(check_in.counts.rows) == int(check_in.weight) == 3
    assert coins.asked == ["gradient/0/w", "counts/errors", "counts/labels"]


def test_in_mode_none_the_sanitiser_changes_nothing_and_asks_for_nothing() -> None:
    made = algorithm(NUMPY)
    release, device = stepped(made.last, TOLD, batch(NUMPY), Given())
    coins = Given()
    check_in, _ = made.last.finish(TOLD, release, device, coins)
    assert coins.asked == []
    sent, made_of = ((sent_record.update, sent_record.counts) for sent_record in (check_in, release))
    assert check_in.weight == release.rows
    pairs = zip(trees.leaves(sent), trees.leaves(made_of), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


def check_in(ops: Ops, fill: float, errors: int = 1) -> CheckIn:
    return CheckIn(
        update=({"w": ops.xp.full((2, 2), fill, dtype="float32")},),
        weight=ops.xp.int32(3),
        counts=Tally(
            rows=ops.xp.int32(4),
            counted=ops.xp.int32(4),
            errors=ops.xp.int32(errors),
            spread=ops.xp.asarray([3, 1], dtype="int32"),
        ),
    )


@BOTH
def test_the_server_takes_a_projected_step_at_each_check_in(ops: Ops) -> None:
    made = algorithm(ops, 'rate = { kind = "inverse-sqrt", c = 2.0 }\nradius = 3.0')
    part = made.last.server
    server, row = part.init(Given()), part.row()
    np.testing.assert_array_equal(model_of(made, server)[0]["w"], np.zeros((2, 2)))
    w = np.zeros((2, 2))
    for t, gradient in enumerate([1.0, -0.5, -4.0], start=1):
        server, row = part.absorb(server, row, check_in(ops, gradient), ops.xp.int32(0))
        server, measured = part.commit(server)
        w = w - 2.0 / math.sqrt(t) * np.full((2, 2), gradient)
        norm = math.sqrt((w**2).sum())
        w = w * min(1.0, 3.0 / norm)
        np.testing.assert_allclose(model_of(made, server)[0]["w"], w, rtol=1e-5)
        np.testing.assert_allclose(part.check_out(server).parameters[0]["w"], w, rtol=1e-5)
        assert int(server.version) == t and server.window == ()
        assert float(measured["estimated_error"]) == pytest.approx(0.25)
    assert math.sqrt((w**2).sum()) == pytest.approx(3.0)  # the ball was reached, so projection was tested
    for totals in (part.report(server).counts, row):
        assert counts_of(totals) == {"rows": 12, "counted": 12, "errors": 3, "spread": [9, 3]}


@BOTH
@pytest.mark.parametrize(("rule", "expected"), [("accept", 1.0), ("weight", 0.5), ("drop", 1.0)])
def test_a_stale_gradient_is_weighted_and_its_counts_are_not(rule: str, expected: float, ops: Ops) -> None:
    made = algorithm(ops, f'stale = "{rule}"\nrate = {{ kind = "constant", c = 1.0 }}')
    part = made.last.server
    server, row = part.absorb(part.init(Given()), part.row(), check_in(ops, 1.0), ops.xp.int32(3))
    server, _ = part.commit(server)
    np.testing.assert_allclose(model_of(made, server)[0]["w"], np.full((2, 2), -expected), rtol=1e-6)
    assert int(row.errors) == 1


def test_staleness_limits_reach_the_driver() -> None:
    made = algorithm(NUMPY, 'stale = "accept"\nmax-staleness = 2')
    assert [made.schedule.accepts(staleness) for staleness in (0, 2, 3)] == [True, True, False]
    made = algorithm(NUMPY, 'stale = "drop"\nmax-staleness = 2')
    assert [made.schedule.accepts(staleness) for staleness in (0, 1)] == [True, False]


def test_what_the_driver_needs_to_know() -> None:
    made = algorithm(NUMPY, "batch = 5\nbuffer = 9")
    assert made.schedule == OnArrival(batch=5, buffer=9)
    assert (made.last.server.takes, made.schedule.batch, made.schedule.buffer) == ("sums", 5, 9)
    assert made.schedule.alone and algorithm(NUMPY, "batch = 5").schedule.buffer == 5
    ready = made.schedule.ready
    assert ready(Counts(received=1, version=7)) and not ready(Counts(received=0, version=7))
    assert made.phases == (made.last,) and made.last.begin().work == ()


def test_without_statistics_nothing_is_counted() -> None:
    for made in (
        algorithm(NUMPY, "statistics = false"),
        algorithm(NUMPY, privacy='mode = "paper"\nepsilon = 1.0\nclip = 1.0'),
    ):
        part = made.last.server
        assert part.row() == ()
        release, device = stepped(made.last, TOLD, batch(NUMPY), Given())
        sent, _ = made.last.finish(TOLD, release, device, Given())
        assert release.counts == () and sent.counts == ()
        server, row = part.absorb(part.init(Given()), (), sent, np.int32(0))
        server, measured = part.commit(server)
        assert row == () and part.report(server).counts == () and measured == {}


def test_adaptive_rates_keep_their_memory_in_the_state() -> None:
    made = algorithm(NUMPY, 'rate = { kind = "adagrad", c = 1.0 }')
    part = made.last.server
    server, row = part.init(Given()), part.row()
    for _ in range(2):
        server, row = part.absorb(server, row, check_in(NUMPY, 2.0), np.int32(0))
        server, _measured = part.commit(server)
    np.testing.assert_allclose(server.memory[0]["w"], np.full((2, 2), 8.0))
    np.testing.assert_allclose(model_of(made, server)[0]["w"], np.full((2, 2), -1 - 1 / math.sqrt(2)), rtol=1e-6)


def test_one_whole_round_through_bytes_is_the_same_as_without() -> None:
    made = algorithm(NUMPY, privacy='mode = "paper"\nepsilon = 5.0\nstatistics-epsilon = 1.0\nclip = 0.6')
    part = made.last.server
    server = part.init(Given())
    sent, _ = made.last.contribute(part.check_out(server), made.last.begin(), batch(NUMPY), Given())
    wires = layouts(part.check_out(server), sent)
    received = wires.check_in.decode(wires.check_in.encode(message(0, sent)))["content"]
    directly, _ = part.commit(part.absorb(server, part.row(), sent, np.int32(0))[0])
    through, _ = part.commit(part.absorb(server, part.row(), received, np.int32(0))[0])
    for one, other in zip(trees.leaves(directly), trees.leaves(through), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)
    wires.check_out.encode(message(1, part.check_out(through)))  # the dtypes of the wire are kept


def test_settings_that_do_not_fit_each_other() -> None:
    with pytest.raises(BadInput, match=r"algorithm: batch = 20 does not fit into buffer = 10"):
        algorithm(NUMPY, "batch = 20\nbuffer = 10")
    for counter in ("device-contacts", "local-steps"):
        with pytest.raises(BadInput, match="device's counter"):
            algorithm(NUMPY, f'rate = {{ kind = "inverse", c = 1.0, counter = "{counter}" }}')
    for counter in ("versions", "check-ins"):
        algorithm(NUMPY, f'rate = {{ kind = "inverse", c = 1.0, counter = "{counter}" }}')
