"""Weights by hand: caps, inverse variance, and learned weights against jax.grad and against luck."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crowdml.algorithms.aggregation.public_rows import Public, layer_spans
from crowdml.algorithms.aggregation.weights import (
    LearnedSettings,
    _Variant,
    average_of,
    capped,
    inverse_variance,
    learned,
    of_changes,
    of_models,
)
from crowdml.core import NUMPY, Ops, trees
from crowdml.models import MODELS
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.targets import some_labels

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
PRIOR = np.array([0.25, 0.25, 0.25, 0.25, 0.0], np.float32)


@BOTH
def test_a_cap_hands_on_what_it_cuts_off(ops: Ops) -> None:
    given = ops.xp.asarray(np.array([[0.9, 0.06, 0.04, 0.0, 0.0]], np.float32))
    found = np.asarray(capped(given, ops.xp.asarray(PRIOR), 2.0, ops))
    np.testing.assert_allclose(found, [[0.5, 0.3, 0.2, 0.0, 0.0]], rtol=1e-5)


@BOTH
def test_noisy_check_ins_count_little(ops: Ops) -> None:
    generator = np.random.default_rng(0)
    deviations = np.array([0.1, 0.1, 0.1, 2.0], np.float32)
    updates = 1 + deviations[:, None] * generator.normal(size=(4, 300)).astype(np.float32)
    updates = np.concatenate([updates, np.zeros((1, 300))]).astype(np.float32)
    weights, _ = inverse_variance(2, ops)(ops.xp.asarray(updates), ops.xp.asarray(PRIOR), ops.xp.zeros(300))
    found = np.asarray(weights)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    assert found.shape == (2, 5) and found[0, 3] < 0.01 and found[0, 4] == 0.0 and found.max() <= 0.75


def blobs(count: int, seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count).astype(np.int32)
    return (np.eye(3)[labels] + generator.normal(0, 0.7, (count, 3))).astype(np.float32), labels


def public(ops: Ops, count: int = 400) -> Public:
    rows, labels = blobs(count)
    model = MODELS["softmax"](kind="softmax").build(3, some_labels(3), ops)
    return Public(rows=ops.xp.asarray(rows), targets=ops.xp.asarray(labels), model=model, ops=ops)


def crowd(ops: Ops, lying: int) -> Any:
    """Changes of four devices that help, of which some are turned round, and an empty line."""
    good = (2 * np.eye(3)).reshape(-1)
    noise = np.random.default_rng(2).normal(0, 0.5, (4, 9))
    signs = np.array([-1] * lying + [1] * (4 - lying))[:, None]
    return ops.xp.asarray(np.concatenate([signs * good + noise, np.zeros((1, 9))]).astype(np.float32))


@BOTH
@pytest.mark.parametrize("variant", ["softmax", "constrained", "unconstrained"])
def test_who_lies_loses_weight(variant: Any, ops: Ops) -> None:
    weigh = learned(LearnedSettings(variant=variant), public(ops), ops)
    weights, used = weigh(crowd(ops, 1), ops.xp.asarray(PRIOR), ops.xp.zeros(9))
    found = np.asarray(weights)[0]
    assert int(used) == 1
    assert found[0] < 0.05 < found[1:4].min() and found[4] == 0.0
    assert found.max() <= 3 * 0.25 + 1e-6
    if variant != "unconstrained":
        assert found.sum() == pytest.approx(1.0, rel=1e-4)


@BOTH
def test_luck_does_not_pass_the_gate(ops: Ops) -> None:
    same = ops.xp.asarray(
        np.concatenate([np.tile((2 * np.eye(3)).reshape(-1), (4, 1)), np.zeros((1, 9))]), dtype="float32"
    )
    weights, used = learned(LearnedSettings(), public(ops), ops)(same, ops.xp.asarray(PRIOR), ops.xp.zeros(9))
    assert int(used) == 0
    np.testing.assert_allclose(np.asarray(weights)[0], PRIOR)


STILL: dict[str, Any] = {"steps": 1, "rate": 1e-9}
"""Nothing is learnt: what is left is where learning begins."""


@BOTH
def test_learning_begins_at_quieter_weights_where_all_public_rows_find_them_better(ops: Ops) -> None:
    """Two of four devices are noisy: scattered by 3 in every number, where the others scatter by 0.1."""
    deviations = np.array([0.1, 0.1, 3.0, 3.0, 0.0])[:, None]
    noise = deviations * np.random.default_rng(5).normal(size=(5, 9))
    noisy = ops.xp.asarray(((2 * np.eye(3)).reshape(-1) * (deviations > 0) + noise).astype(np.float32))
    weights, used = learned(LearnedSettings(**STILL), public(ops), ops)(noisy, ops.xp.asarray(PRIOR), ops.xp.zeros(9))
    found = np.asarray(weights)[0]
    assert int(used) == 1 and found[:2].min() > 0.4 and found[2:].max() < 0.05


@BOTH
def test_quieter_weights_are_left_where_they_do_harm(ops: Ops) -> None:
    """Three devices agree that nothing is to be learnt, and one knows better: it scatters most."""
    good = (4 * np.eye(3)).reshape(-1)
    lines = np.stack([0.01 * good, 0.02 * good, 0.03 * good, good, 0 * good]).astype(np.float32)
    settings = LearnedSettings(**STILL)
    weights, _ = learned(settings, public(ops), ops)(ops.xp.asarray(lines), ops.xp.asarray(PRIOR), ops.xp.zeros(9))
    np.testing.assert_allclose(np.asarray(weights)[0], PRIOR, atol=1e-4)


@pytest.mark.parametrize("variant", ["constrained", "unconstrained"])
def test_the_papers_variants_begin_at_the_prior(variant: Any) -> None:
    settings = LearnedSettings(variant=variant, gate=False, **STILL)
    weights, _ = learned(settings, public(NUMPY), NUMPY)(crowd(NUMPY, 1), PRIOR, np.zeros(9, np.float32))
    np.testing.assert_allclose(np.asarray(weights)[0], PRIOR, atol=1e-4)


@BOTH
def test_unconstrained_weights_combine_whole_models_and_not_changes(ops: Ops) -> None:
    """Devices that change nothing leave half of a good model as it is; whole models may grow to the good one."""
    half = ops.xp.asarray((0.5 * np.eye(3)).reshape(-1).astype(np.float32))
    still, prior = ops.xp.zeros((5, 9), dtype="float32"), ops.xp.asarray(PRIOR)
    rows = public(ops)
    settings = LearnedSettings(variant="unconstrained", gate=False, cap=1000.0)
    weights, _ = learned(settings, rows, ops)(still, prior, half)
    found = np.asarray(weights)
    assert found[0].sum() > 1.5 and found[0, 4] == 0.0
    step = np.asarray(of_models(weights, still, half, layer_spans(rows.model), ops))
    np.testing.assert_allclose(step, (found[0].sum() - 1) * np.asarray(half), rtol=1e-5)
    losses = [float(np.mean(np.asarray(rows.losses(at)))) for at in (half, half + ops.xp.asarray(step))]
    assert losses[1] < losses[0] - 0.05


@BOTH
def test_models_and_changes_are_the_same_average_where_weights_add_up_to_one(ops: Ops) -> None:
    weights = ops.xp.asarray(np.array([[0.25, 0.5, 0.25, 0.0, 0.0]], np.float32))
    present, updates = ops.xp.asarray(np.full(9, 1000.0, np.float32)), crowd(ops, 1)
    spans = layer_spans(public(ops).model)
    found = [np.asarray(average(weights, updates, present, spans, ops)) for average in (of_models, of_changes)]
    np.testing.assert_array_equal(found[0], found[1])


def test_a_cap_that_leaves_weights_below_one_does_not_shrink_the_model() -> None:
    """Only without a constraint whole models are averaged; elsewhere what is missing is missing from the change."""
    assert average_of(LearnedSettings(variant="unconstrained")) is of_models
    assert all(average_of(LearnedSettings(variant=variant)) is of_changes for variant in ("softmax", "constrained"))


@pytest.mark.parametrize("variant", ["softmax", "constrained", "unconstrained"])
def test_the_slope_of_what_learns_is_the_gradient(variant: Any) -> None:
    rows, updates = public(JAX, 100), crowd(JAX, 1)
    spans, settings = layer_spans(rows.model), LearnedSettings(variant=variant, anchor=0.3)
    begin = jnp.asarray(PRIOR)[None]
    made = _Variant(settings=settings, prior=jnp.asarray(PRIOR), begin=begin, ops=JAX)
    present = jnp.asarray(np.random.default_rng(4).normal(0, 0.5, 9), jnp.float32)
    at = made.start() + jnp.asarray([[0.1, -0.2, 0.05, 0.3, 0.0]])

    def loss(learnt: Any) -> Any:
        weights = made.weights(learnt)
        models = present + updates[:4]
        found = jnp.mean(rows.losses(weights[0, :4] @ models))
        if variant == "softmax":
            kept = weights[0, :4]
            found += 0.3 * jnp.sum(kept * jnp.log(kept / jnp.asarray(PRIOR)[:4]))
        return found

    down = rows.gradient(present + average_of(settings)(made.weights(at), updates, present, spans, JAX))
    found = made.slope(at, (updates @ down)[None], (present @ down)[None])
    np.testing.assert_allclose(found[0, :4], jax.grad(loss)(at)[0, :4], rtol=2e-4, atol=1e-6)


def test_layers_are_weighed_by_themselves() -> None:
    model = MODELS["mlp"].model_validate({"kind": "mlp", "layers": [2]}).build(3, some_labels(3), NUMPY)
    spans = layer_spans(model)
    assert [span.stop - span.start for span in spans] == [trees.size(layer) for layer in model.zeros() if layer]
    updates = np.stack([np.ones(spans[-1].stop), np.zeros(spans[-1].stop)]).astype(np.float32)
    found = of_changes(np.array([[0.2, 0.8], [0.7, 0.3]], np.float32), updates, updates[0], spans, NUMPY)
    np.testing.assert_allclose(found[spans[0]], 0.2, rtol=1e-6)
    np.testing.assert_allclose(found[spans[1]], 0.7, rtol=1e-6)


def test_arrays_are_weighed_by_themselves() -> None:
    """The paper has a weight for every trainable array: weights and biases of a layer apart."""
    model = MODELS["mlp"].model_validate({"kind": "mlp", "layers": [2]}).build(3, some_labels(3), NUMPY)
    spans = layer_spans(model, "tensor")
    assert [span.stop - span.start for span in spans] == [leaf.size for leaf in trees.leaves(model.zeros())]
    assert len(spans) == 2 * len(layer_spans(model))
    rows = np.random.default_rng(3).normal(size=(40, 3)).astype(np.float32)
    taught = Public(model=model, rows=rows, targets=np.arange(40, dtype=np.int32) % 3, ops=NUMPY)
    updates = np.random.default_rng(4).normal(size=(5, spans[-1].stop)).astype(np.float32)
    found, _ = learned(LearnedSettings(per="tensor"), taught, NUMPY)(updates, PRIOR, updates[0])
    assert np.asarray(found).shape == (len(spans), 5)
