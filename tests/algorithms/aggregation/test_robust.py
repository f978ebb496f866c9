"""Robust rules by hand: each against a plain formula, with empty lines, over both namespaces."""

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms.aggregation.robust import (
    RULES,
    CentredClipping,
    GeometricMedian,
    MultiKrum,
    RobustSettings,
    RootCosine,
    TrimmedMean,
    median,
    shortened,
)
from crowdml.core import NUMPY, Ops
from crowdml.simulation.engine.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
GENERATOR = np.random.default_rng(1)
HONEST = GENERATOR.normal(1.0, 0.2, (7, 4)).astype(np.float32)
LIARS = np.full((2, 4), -50.0, np.float32)
ROOT = np.ones(4, np.float32)


def window(*parts: np.ndarray[Any, Any], empty: int = 3) -> tuple[Any, Any]:
    """Lines of weight 1, and empty lines below them."""
    lines = np.concatenate(parts)
    weights = np.concatenate([np.ones(len(lines)), np.zeros(empty)]).astype(np.float32)
    return np.concatenate([lines, np.zeros((empty, 4), np.float32)]), weights


def apply(settings: Any, ops: Ops, *parts: np.ndarray[Any, Any]) -> Any:
    updates, weights = window(*parts)
    return np.asarray(settings.build(ops)(ops.xp.asarray(updates), ops.xp.asarray(weights), ops.xp.asarray(ROOT)))


@BOTH
@pytest.mark.parametrize("kind", [kind for kind in RULES if kind not in ("none", "mean")])
def test_two_liars_in_nine_move_no_rule_far(kind: str, ops: Ops) -> None:
    made = {"trimmed-mean": TrimmedMean(share=0.25), "multi-krum": MultiKrum(share=0.25)}
    settings = made.get(kind) or RULES[kind](kind=kind)
    found = apply(settings, ops, HONEST, LIARS)
    # The mean is moved by 11; centred clipping and the geometric median by some spreads of the honest.
    assert np.abs(found - HONEST.mean(axis=0)).max() < 0.6
    assert np.abs(apply(RULES["mean"](kind="mean"), ops, HONEST, LIARS) - HONEST.mean(axis=0)).max() > 10


@BOTH
@pytest.mark.parametrize("kind", list(RULES))
def test_one_honest_check_in_is_its_own_average(kind: str, ops: Ops) -> None:
    np.testing.assert_allclose(apply(RULES[kind](kind=kind), ops, HONEST[:1]), HONEST[0], rtol=1e-4)


@BOTH
def test_the_median_ignores_empty_lines(ops: Ops) -> None:
    for count in (4, 5):
        values, weights = window(HONEST[:count])
        found = median(ops.xp.asarray(values), ops.xp.asarray(weights) > 0, ops)
        np.testing.assert_allclose(found, np.median(HONEST[:count], axis=0), rtol=1e-6)


@BOTH
def test_the_trimmed_mean_leaves_out_both_ends(ops: Ops) -> None:
    lines = np.array([[5.0], [1.0], [9.0], [3.0], [-7.0]], np.float32).repeat(4, axis=1)
    np.testing.assert_allclose(apply(TrimmedMean(share=0.2), ops, lines), 3.0)


@BOTH
def test_multi_krum_takes_the_mean_of_those_with_near_neighbours(ops: Ops) -> None:
    near = apply(MultiKrum(share=0.3), ops, HONEST, LIARS)
    apart = ((HONEST[:, None] - HONEST[None]) ** 2).sum(axis=2)
    scores = np.sort(apart, axis=1)[:, 1:6].sum(axis=1)
    np.testing.assert_allclose(near, HONEST[np.argsort(scores)[:7]].mean(axis=0), rtol=1e-5)


@BOTH
def test_the_geometric_median_has_the_least_sum_of_distances(ops: Ops) -> None:
    found = apply(GeometricMedian(steps=100), ops, HONEST, LIARS)
    lines = np.concatenate([HONEST, LIARS])

    def total(point: Any) -> float:
        return float(np.linalg.norm(lines - point, axis=1).sum())

    directions = np.random.default_rng(0).normal(size=(50, 4))
    assert all(total(found) <= total(found + 0.05 * direction / np.linalg.norm(direction)) for direction in directions)


@BOTH
def test_centred_clipping_with_a_large_radius_is_the_mean(ops: Ops) -> None:
    np.testing.assert_allclose(apply(CentredClipping(radius=1e6), ops, HONEST), HONEST.mean(axis=0), rtol=1e-5)


@BOTH
def test_the_root_set_drops_what_points_away(ops: Ops) -> None:
    np.testing.assert_allclose(apply(RootCosine(), ops, HONEST, -HONEST), HONEST.mean(axis=0), rtol=1e-5)
    assert not apply(RootCosine(), ops, -HONEST).any(), "nobody agrees: no step"
    aside = np.array([[1.0, 1.0, 1.0, -3.0]], np.float32)
    by_cosine = apply(RootCosine(weights="cosine"), ops, HONEST, aside)
    np.testing.assert_allclose(by_cosine, apply(RootCosine(weights="cosine"), ops, HONEST), rtol=1e-5)


@BOTH
def test_only_long_lines_are_shortened(ops: Ops) -> None:
    found = np.asarray(shortened(ops.xp.asarray(np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], np.float32)), 1.0, ops))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], rtol=1e-6)


def test_a_section_without_keys_asks_for_nothing() -> None:
    assert not RobustSettings().asked
    assert RobustSettings(norm_bound=1.0).asked
