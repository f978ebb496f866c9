"""Every rate against a plain formula over several steps, in both namespaces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.rates import RATES, uphill
from crowdml.core import NUMPY, BadInput, Ops
from crowdml.simulation.engine.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
UPDATES = [
    np.array(values, np.float64) for values in ([1.0, -2.0, 0.0], [0.5, 0.0, 0.0], [-3.0, 4.0, 0.0], [1e-3, 1.0, 0.0])
]
C = 0.3


def adagrad(steps: list[Any]) -> Any:
    return C * steps[-1] / (np.sqrt(sum(step**2 for step in steps)) + 1e-8)


def rmsprop(steps: list[Any], decay: float = 0.9) -> Any:
    mean = sum((1 - decay) * decay ** (len(steps) - 1 - at) * step**2 for at, step in enumerate(steps))
    return C * steps[-1] / (np.sqrt(mean) + 1e-8)


def running(steps: list[Any], decay: float) -> Any:
    return sum((1 - decay) * decay ** (len(steps) - 1 - at) * step for at, step in enumerate(steps))


def adam(steps: list[Any]) -> Any:
    t = len(steps)
    mean, square = running(steps, 0.9) / (1 - 0.9**t), running([step**2 for step in steps], 0.999) / (1 - 0.999**t)
    return C * mean / (np.sqrt(square) + 1e-8)


def yogi(steps: list[Any]) -> Any:
    t, square = len(steps), np.zeros(3)
    for step in steps:
        square = square - 0.001 * step**2 * np.sign(square - step**2)
    return C * running(steps, 0.9) / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)


def dual_averaging(steps: list[Any]) -> Any:
    before = C * sum(steps[:-1]) / math.sqrt(len(steps) - 1) if len(steps) > 1 else 0.0
    return C * sum(steps) / math.sqrt(len(steps)) - before


FORMULAS: dict[str, Callable[[list[Any]], Any]] = {
    "constant": lambda steps: C * steps[-1],
    "inverse": lambda steps: C * steps[-1] / len(steps),
    "inverse-sqrt": lambda steps: C * steps[-1] / math.sqrt(len(steps)),
    "adagrad": adagrad,
    "rmsprop": rmsprop,
    "step": lambda steps: C * steps[-1],  # ten counts at the first rate
    "exponential": lambda steps: C * steps[-1] * 0.99 ** (len(steps) - 1),
    "adam": adam,
    "yogi": yogi,
    "dual-averaging": dual_averaging,
    "momentum": lambda steps: C * sum(0.9 ** (len(steps) - 1 - at) * step for at, step in enumerate(steps)),
}


def run(kind: str, ops: Ops, **more: Any) -> list[Any]:
    """Four steps on a tree of two leaves, the second one of another shape."""
    rate = RATES[kind].model_validate({"kind": kind, "c": C} | more).build(C, ops)
    zeros = ({"w": ops.xp.zeros((1, 3), dtype=ops.xp.float32)}, {"b": ops.xp.zeros((3,), dtype=ops.xp.float32)})
    memory, changes = rate.init(zeros), []
    for count, update in enumerate(UPDATES, start=1):
        given = ops.xp.asarray(update, dtype=ops.xp.float32)
        change, memory = rate.step(memory, ({"w": given[None, :]}, {"b": given * 10}), ops.xp.int32(count))
        changes.append(change)
    return changes


@BOTH
@pytest.mark.parametrize("kind", list(RATES))
def test_four_steps(kind: str, ops: Ops) -> None:
    for at, change in enumerate(run(kind, ops)):
        expected = FORMULAS[kind](UPDATES[: at + 1])
        larger = FORMULAS[kind]([10 * update for update in UPDATES[: at + 1]])
        np.testing.assert_allclose(change[0]["w"][0], expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(change[1]["b"], larger, rtol=1e-5, atol=1e-7)
        assert change[0]["w"].dtype == np.float32 and change[0]["w"].shape == (1, 3)


@BOTH
def test_a_rate_that_falls_in_steps(ops: Ops) -> None:
    for at, change in enumerate(run("step", ops, every=2, factor=0.5)):
        np.testing.assert_allclose(change[0]["w"][0], C * 0.5 ** (at // 2) * UPDATES[at], rtol=1e-6)


@BOTH
@pytest.mark.parametrize("kind", ["adam", "yogi"])
def test_means_that_are_not_corrected_begin_small(kind: str, ops: Ops) -> None:
    first = run(kind, ops, corrected=False, floor=1e-3, square_decay=0.99)[0][0]["w"][0, 0]
    assert float(first) == pytest.approx(C * 0.1 / (math.sqrt(0.01) + 1e-3), rel=1e-5)


@BOTH
def test_uphill_adds_what_devices_have_changed(ops: Ops) -> None:
    rate = uphill(RATES["momentum"].model_validate({"kind": "momentum", "c": C}).build(C, ops))
    change = {"w": ops.xp.asarray([1.0, -2.0], dtype=ops.xp.float32)}
    step, velocity = rate.step(rate.init(change), change, ops.xp.int32(1))
    np.testing.assert_allclose(step["w"], [-C, 2 * C], rtol=1e-6)
    again, _ = rate.step(velocity, change, ops.xp.int32(2))
    np.testing.assert_allclose(again["w"], [-1.9 * C, 3.8 * C], rtol=1e-6)
    assert rate.factor is None
    plain = uphill(RATES["exponential"].model_validate({"kind": "exponential", "c": C}).build(C, ops))
    assert plain.factor is not None and float(plain.factor(ops.xp.int32(2))) == pytest.approx(-0.99 * C)


@BOTH
def test_rmsprop_with_another_decay(ops: Ops) -> None:
    for at, change in enumerate(run("rmsprop", ops, decay=0.5)):
        np.testing.assert_allclose(change[0]["w"][0], rmsprop(UPDATES[: at + 1], 0.5), rtol=1e-5, atol=1e-7)


@BOTH
@pytest.mark.parametrize("kind", ["adagrad", "rmsprop"])
def test_the_floor_is_added_to_the_root(kind: str, ops: Ops) -> None:
    first = float(run(kind, ops, floor=1.0)[0][0]["w"][0, 0])
    root = 1.0 if kind == "adagrad" else math.sqrt(0.1)
    assert first == pytest.approx(C / (root + 1.0), rel=1e-5)


@pytest.mark.parametrize("kind", ["constant", "inverse", "inverse-sqrt", "step", "exponential"])
def test_rates_by_count_remember_nothing(kind: str) -> None:
    assert RATES[kind].model_validate({"kind": kind, "c": C}).build(C, NUMPY).init({"w": np.zeros(3)}) == ()


@pytest.mark.parametrize("kind", list(RATES))
def test_the_constant_handed_in_counts_not_the_one_of_the_file(kind: str) -> None:
    settings = RATES[kind].model_validate({"kind": kind, "c": 5.0})
    rate = settings.build(2.0, NUMPY)
    change, _ = rate.step(rate.init(np.zeros(1, np.float32)), np.ones(1, np.float32), np.int32(1))
    expected = 2.0 / math.sqrt(0.1) if kind == "rmsprop" else 2.0
    np.testing.assert_allclose(change, [expected], rtol=1e-5)


@pytest.mark.parametrize("kind", list(RATES))
def test_settings_are_named_described_and_positive(kind: str) -> None:
    fields = RATES[kind].model_fields
    assert fields["kind"].default == kind
    assert all(field.description for name, field in fields.items() if name != "kind")
    for c in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError):
            RATES[kind].model_validate({"kind": kind, "c": c})


def test_an_unknown_rate() -> None:
    with pytest.raises(BadInput, match='did you mean "inverse-sqrt"'):
        RATES["inverse-sqr"]
