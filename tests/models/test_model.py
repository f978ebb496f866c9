"""Per-example gradients against automatic differentiation of the written-out loss, and bounds on them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.core import NUMPY, Batch, Ops, trees
from crowdml.models import MODELS, Model
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.targets import some_labels

# isort: split
import jax
import jax.numpy as jnp

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
FEATURES, ROWS = 6, 5

HIDDEN: list[dict[str, Any]] = [
    {"kind": "dense", "size": 4},
    {"kind": "tanh"},
    {"kind": "dense", "size": 3, "bias": False},
]

# A name, the settings, the number of labels, and the same model written as kinds of layers and a loss.
CASES: dict[str, tuple[dict[str, Any], int, list[str], str]] = {
    "softmax": ({"kind": "softmax"}, 3, ["dense"], "softmax"),
    "softmax-bias": ({"kind": "softmax", "bias": True}, 4, ["dense"], "softmax"),
    "logistic": ({"kind": "logistic"}, 2, ["dense"], "logistic"),
    "logistic-bias": ({"kind": "logistic", "bias": True}, 2, ["dense"], "logistic"),
    "svm": ({"kind": "svm"}, 2, ["dense"], "hinge"),
    "svm-no-bias": ({"kind": "svm", "bias": False}, 2, ["dense"], "hinge"),
    "mlp-none": ({"kind": "mlp", "layers": []}, 3, ["dense"], "softmax"),
    "layers-hinge": (
        {
            "kind": "layers",
            "shape": [2, 3],
            "loss": "hinge",
            "layers": [{"kind": "flatten"}, {"kind": "dense", "size": 1}],
        },
        2,
        ["flatten", "dense"],
        "hinge",
    ),
    "layers-logistic": (
        {"kind": "layers", "loss": "logistic", "layers": [*HIDDEN, {"kind": "relu"}, {"kind": "dense", "size": 1}]},
        2,
        ["dense", "tanh", "dense", "relu", "dense"],
        "logistic",
    ),
    "layers-shaped": (
        {
            "kind": "layers",
            "shape": [1, 3, 2],
            "loss": "squared",
            "layers": [{"kind": "tanh"}, {"kind": "flatten"}, *HIDDEN, {"kind": "sigmoid"}],
        },
        3,
        ["tanh", "flatten", "dense", "tanh", "dense", "sigmoid"],
        "squared",
    ),
    "layers-relu-first": (
        {"kind": "layers", "layers": [{"kind": "relu"}, {"kind": "dense", "size": 3}]},
        3,
        ["relu", "dense"],
        "softmax",
    ),
}
CASES |= {
    f"mlp-{activation}-{top}": (
        {"kind": "mlp", "layers": [5, 4], "activation": activation, "top": top},
        3,
        ["dense", activation, "dense", activation, "dense"],
        top,
    )
    for activation in ("tanh", "sigmoid", "relu")
    for top in ("softmax", "squared")
}
EVERY = pytest.mark.parametrize("case", list(CASES))


def build(case: str, ops: Ops) -> Model:
    given, classes, _, _ = CASES[case]
    made = MODELS[given["kind"]].model_validate(given).build(FEATURES, some_labels(classes), ops)
    return made


def drawn(case: str) -> tuple[Any, Batch]:
    """Random parameters (biases too) and rows, as NumPy arrays."""
    rng = np.random.default_rng(list(CASES).index(case))
    _, classes, _, _ = CASES[case]
    begun = build(case, NUMPY).init(Uniform(rng))
    parameters = trees.map(lambda leaf: rng.normal(0, 0.7, leaf.shape).astype(np.float32), begun)
    rows = rng.normal(0, 1, (ROWS, FEATURES)).astype(np.float32)
    labels = np.resize(np.arange(classes), ROWS).astype(np.int32)
    return parameters, Batch(rows=rows, targets=labels, mask=np.ones(ROWS, np.float32))


class Uniform:
    """Coins that know uniform draws only, and refuse to be asked twice for one stage."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.asked = rng, set[str]()

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Any:
        assert stage not in self.asked
        self.asked.add(stage)
        return self.rng.uniform(size=shape).astype(np.float32)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Any:
        raise NotImplementedError


def written_out(case: str, parameters: Any, row: Any, label: Any) -> Any:
    """The loss of one example, written as in a textbook."""
    _, classes, kinds, loss = CASES[case]
    x = row
    for kind, layer in zip(kinds, parameters, strict=True):
        if kind == "dense":
            x = layer["w"] @ x + layer.get("b", 0.0)
        elif kind == "flatten":
            x = x.ravel()
        else:
            x = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu}[kind](x)
    y = 2.0 * label - 1.0
    if loss == "softmax":
        return -jax.nn.log_softmax(x)[label]
    if loss == "logistic":
        return jax.nn.softplus(-y * x[0])
    if loss == "hinge":
        return jax.nn.relu(1 - y * x[0])
    return 0.5 * jnp.sum((x - jax.nn.one_hot(label, classes)) ** 2)


@functools.cache
def oracle(case: str) -> Any:
    """One gradient per example, materialised, from automatic differentiation."""
    parameters, batch = drawn(case)
    one = jax.grad(functools.partial(written_out, case))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))(parameters, batch.rows, batch.targets))


def close(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5 * scale + 1e-7)


@BOTH
@EVERY
def test_losses_are_the_written_out_ones(case: str, ops: Ops) -> None:
    parameters, batch = drawn(case)
    found = build(case, ops).losses(parameters, batch.rows, batch.targets)
    one = functools.partial(written_out, case, parameters)
    close(found, jax.jit(jax.vmap(one))(batch.rows, batch.targets))


@BOTH
@EVERY
def test_gradients_norms_and_totals_are_those_of_automatic_differentiation(case: str, ops: Ops) -> None:
    parameters, batch = drawn(case)
    each = oracle(case)
    found = build(case, ops).gradients(parameters, batch)
    # Each example by itself, through a weight of one on it and zero elsewhere.
    for example in range(ROWS):
        single = found.total(np.eye(ROWS, dtype=np.float32)[example])
        assert [path for path, _ in trees.paths(single)] == [path for path, _ in trees.paths(parameters)]
        for leaf, expected in zip(trees.leaves(single), trees.leaves(each), strict=True):
            close(leaf, expected[example])
    flat = np.concatenate([np.asarray(leaf).reshape(ROWS, -1) for leaf in trees.leaves(each)], axis=1)
    assert flat.any()
    close(found.norms(1, ops), np.abs(flat).sum(axis=1))
    close(found.norms(2, ops), np.sqrt(np.square(flat).sum(axis=1)))
    weights = np.array([0.5, 0.0, -2.0, 1.0, 0.25], np.float32)
    for leaf, expected in zip(trees.leaves(found.total(weights)), trees.leaves(each), strict=True):
        close(leaf, np.tensordot(weights, np.asarray(expected), axes=1))
        assert leaf.dtype == np.float32


@BOTH
@pytest.mark.parametrize("case", ["softmax-bias", "mlp-relu-softmax", "layers-shaped"])
def test_rows_without_weight_count_for_nothing(case: str, ops: Ops) -> None:
    parameters, batch = drawn(case)
    rows = np.array(batch.rows)
    rows[3:] = 1e6  # padding may hold anything finite
    padded = Batch(rows=rows, targets=batch.targets, mask=np.array([1, 1, 1, 0, 0], np.float32))
    short = Batch(rows=batch.rows[:3], targets=batch.targets[:3], mask=np.ones(3, np.float32))
    model = build(case, ops)
    found = model.gradients(parameters, padded).total(padded.mask)
    expected = model.gradients(parameters, short).total(short.mask)
    for one, other in zip(trees.leaves(found), trees.leaves(expected), strict=True):
        close(one, other)


@BOTH
def test_predictions_and_outputs(ops: Ops) -> None:
    parameters, batch = drawn("mlp-tanh-softmax")
    model = build("mlp-tanh-softmax", ops)
    outputs = model.outputs(parameters, batch.rows)
    assert outputs.shape == (3, ROWS)
    np.testing.assert_array_equal(model.predict(parameters, batch.rows), np.argmax(np.asarray(outputs), axis=0))
    np.testing.assert_array_equal(model.gradients(parameters, batch).outputs, outputs)


@BOTH
@pytest.mark.parametrize("case", ["softmax-bias", "mlp-tanh-softmax", "layers-shaped"])
def test_zeros_have_the_shapes_of_the_parameters(case: str, ops: Ops) -> None:
    found, expected = build(case, ops).zeros(), build(case, NUMPY).init(Uniform(np.random.default_rng(1)))
    assert [(path, leaf.shape, np.dtype(leaf.dtype)) for path, leaf in trees.paths(found)] == [
        (path, leaf.shape, leaf.dtype) for path, leaf in trees.paths(expected)
    ]
    assert not any(np.asarray(leaf).any() for leaf in trees.leaves(found))


@EVERY
def test_init_has_one_dict_per_layer_and_float32(case: str) -> None:
    model = build(case, NUMPY)
    parameters = model.init(Uniform(np.random.default_rng(1)))
    assert len(parameters) == len(model.layers)
    assert all(leaf.dtype == np.float32 for leaf in trees.leaves(parameters))
    assert [set(layer) <= {"w", "b"} for layer in parameters]


@BOTH
def test_the_regulariser_leaves_biases_alone(ops: Ops) -> None:
    parameters, _ = drawn("mlp-tanh-softmax")
    found = build("mlp-tanh-softmax", ops).regulariser(parameters, 0.3)

    def half_square(candidate: Any) -> Any:
        return 0.5 * 0.3 * sum(jnp.sum(layer["w"] ** 2) for layer in candidate if "w" in layer)

    expected = jax.grad(half_square)(parameters)
    for one, other in zip(trees.leaves(found), trees.leaves(expected), strict=True):
        close(one, other)
    assert all(np.all(np.asarray(layer["b"]) == 0) for layer in found if "b" in layer)
    assert np.any(np.asarray(found[0]["w"]))


LINEAR = ["softmax", "softmax-bias", "logistic", "logistic-bias", "svm", "svm-no-bias", "mlp-none"]


@settings(deadline=None, max_examples=60)
@given(
    case=st.sampled_from(LINEAR),
    order=st.sampled_from([1, 2]),
    radius=st.sampled_from([0.01, 1.0, 30.0]),
    spread=st.sampled_from([0.0, 0.1, 10.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_row_within_the_bound_has_a_longer_gradient(
    case: str, order: int, radius: float, spread: float, seed: int
) -> None:
    model = build(case, NUMPY)
    bound = model.gradient_bound(order, radius)
    assert bound is not None
    rng = np.random.default_rng(seed)
    parameters = trees.map(lambda leaf: (spread * rng.standard_normal(leaf.shape)).astype(np.float32), drawn(case)[0])
    rows = rng.standard_normal((50, FEATURES)) * (rng.random((50, FEATURES)) < 0.5)
    lengths = np.maximum(np.linalg.norm(rows, ord=order, axis=1, keepdims=True), 1e-9)
    rows = (rows / lengths * radius).astype(np.float32)
    labels = rng.integers(0, CASES[case][1], 50).astype(np.int32)
    found = model.gradients(parameters, Batch(rows=rows, targets=labels, mask=np.ones(50, np.float32)))
    assert np.max(found.norms(order, NUMPY)) <= bound * (1 + 1e-5)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("case", LINEAR)
def test_the_bound_is_tight(case: str, order: int) -> None:
    """A row at the bound that the model is sure to get wrong comes within a thousandth of it."""
    model = build(case, NUMPY)
    bound = model.gradient_bound(order, 0.5)
    assert bound is not None
    parameters = trees.map(np.zeros_like, drawn(case)[0])
    # Scores of -40 for the true label (or for the only output), 0 for the others.
    parameters[0]["w"][0, 0] = -80.0
    row = np.zeros((1, FEATURES), np.float32)
    row[0, 0] = 0.5
    true = 0 if model.loss.width > 1 else 1
    found = model.gradients(
        parameters, Batch(rows=row, targets=np.array([true], np.int32), mask=np.ones(1, np.float32))
    )
    norm = float(found.norms(order, NUMPY)[0])
    if model.loss.width > 2 and order == 2:
        # √2 needs all the probability on one wrong label.
        parameters[0]["w"][1, 0] = 80.0
        norm = float(
            model.gradients(
                parameters, Batch(rows=row, targets=np.array([0], np.int32), mask=np.ones(1, np.float32))
            ).norms(order, NUMPY)[0]
        )
    assert 0.999 * bound <= norm <= bound * (1 + 1e-6)


def test_the_bounds_of_the_paper() -> None:
    # Crowd-ML 2015, theorem 1: with ‖x‖₁ ≤ 1 the mean of b gradients has sensitivity 4/b; 8/b with a bias feature.
    assert build("softmax", NUMPY).gradient_bound(1, 1.0) == 2.0
    assert build("softmax-bias", NUMPY).gradient_bound(1, 1.0) == 4.0
    assert build("softmax", NUMPY).gradient_bound(2, 1.0) == pytest.approx(2**0.5)
    assert build("softmax-bias", NUMPY).gradient_bound(2, 1.0) == pytest.approx(2.0)
    assert build("logistic", NUMPY).gradient_bound(1, 3.0) == 3.0


@pytest.mark.parametrize("case", ["mlp-tanh-softmax", "layers-hinge", "layers-relu-first", "layers-shaped"])
@pytest.mark.parametrize("order", [1, 2])
def test_deep_models_and_unbounded_rows_have_no_bound(case: str, order: int) -> None:
    assert build(case, NUMPY).gradient_bound(order, 1.0) is None
    assert build("softmax", NUMPY).gradient_bound(order, None) is None


def test_the_squared_loss_has_no_bound() -> None:
    model = (
        MODELS["mlp"].model_validate({"kind": "mlp", "layers": [], "top": "squared"}).build(4, some_labels(2), NUMPY)
    )
    assert model.gradient_bound(2, 1.0) is None
