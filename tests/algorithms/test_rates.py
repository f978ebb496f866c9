"""Every rate against a plain formula over several steps, in both namespaces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.rates import RATES
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


FORMULAS: dict[str, Callable[[list[Any]], Any]] = {
    "constant": lambda steps: C * steps[-1],
    "inverse": lambda steps: C * steps[-1] / len(steps),
    "inverse-sqrt": lambda steps: C * steps[-1] / math.sqrt(len(steps)),
    "adagrad": adagrad,
    "rmsprop": rmsprop,
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
def test_rmsprop_with_another_decay(ops: Ops) -> None:
    for at, change in enumerate(run("rmsprop", ops, decay=0.5)):
        np.testing.assert_allclose(change[0]["w"][0], rmsprop(UPDATES[: at + 1], 0.5), rtol=1e-5, atol=1e-7)


@BOTH
@pytest.mark.parametrize("kind", ["adagrad", "rmsprop"])
def test_the_floor_is_added_to_the_root(kind: str, ops: Ops) -> None:
    first = float(run(kind, ops, floor=1.0)[0][0]["w"][0, 0])
    root = 1.0 if kind == "adagrad" else math.sqrt(0.1)
    assert first == pytest.approx(C / (root + 1.0), rel=1e-5)


@pytest.mark.parametrize("kind", ["constant", "inverse", "inverse-sqrt"])
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
