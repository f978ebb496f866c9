"""Layers for pictures: gradients of every example against `vmap(grad)` of the same net in JAX's own words."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Batch, Ops, trees
from crowdml.models import MODELS, Model
from crowdml.models.layers.bands import bands
from crowdml.models.layers.convolution import Convolution, ConvolutionFactors
from crowdml.models.layers.pooling import windows
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.gradients import close, require_gradients
from tests.support.targets import some_labels

# isort: split
import jax
import jax.numpy as jnp
from jax import lax

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
ROWS, CLASSES = 5, 3
LAST: list[dict[str, Any]] = [{"kind": "flatten"}, {"kind": "dense", "size": CLASSES}]

# A name, the shape of a picture, and the layers before the last.
NETS: dict[str, tuple[tuple[int, int, int], list[dict[str, Any]]]] = {
    "one": ((6, 6, 2), [{"kind": "convolution", "size": 3}]),
    "strides": (
        (9, 7, 2),
        [
            {"kind": "convolution", "size": 3, "kernel": 4, "stride": 2},
            {"kind": "tanh"},
            {"kind": "convolution", "size": 4, "kernel": 2, "stride": 2, "padding": "valid", "bias": False},
        ],
    ),
    "lines of zeros": (
        (9, 7, 2),
        [
            {"kind": "convolution", "size": 3, "kernel": 4, "stride": 2, "padding": 3},
            {"kind": "tanh"},
            {"kind": "convolution", "size": 4, "kernel": 3, "padding": 1, "start": "fan-in"},
        ],
    ),
    "bands": (
        (8, 12, 1),
        [
            {"kind": "convolution", "size": 6, "kernel": 5, "padding": 0},
            {"kind": "tanh"},
            {"kind": "convolution", "size": 13, "kernel": 3, "padding": 2},
        ],
    ),
    "a line of seventeen places": ((3, 17, 2), [{"kind": "convolution", "size": 6, "kernel": 3}]),
    "many filters": ((4, 6, 2), [{"kind": "convolution", "size": 17}, {"kind": "convolution", "size": 3}]),
    "gram": ((5, 4, 12), [{"kind": "convolution", "size": 14, "kernel": 3, "stride": 3}]),
    "sparse": (
        (6, 6, 4),
        [
            {"kind": "convolution", "size": 4, "connections": 1},
            {"kind": "tanh"},
            {"kind": "convolution", "size": 3, "connections": [[0, 2], [3, 1], [1, 2]]},
        ],
    ),
    "max": ((8, 8, 2), [{"kind": "convolution", "size": 3}, {"kind": "tanh"}, {"kind": "pooling"}]),
    "max, overlapping": (
        (7, 8, 2),
        [{"kind": "convolution", "size": 3}, {"kind": "pooling", "size": 3, "stride": 2, "padding": "same"}],
    ),
    "average": ((8, 8, 2), [{"kind": "convolution", "size": 3}, {"kind": "pooling", "of": "average"}]),
    "average, overlapping": (
        (7, 7, 2),
        [{"kind": "convolution", "size": 3}, {"kind": "pooling", "of": "average", "size": 3, "stride": 2}],
    ),
    "group-norm": (
        (6, 6, 2),
        [{"kind": "convolution", "size": 4}, {"kind": "group-norm", "groups": 2}, {"kind": "tanh"}],
    ),
    "group-norm without parameters": (
        (6, 6, 2),
        [{"kind": "convolution", "size": 4}, {"kind": "group-norm", "groups": 2, "affine": False}],
    ),
    "flat group-norm": (
        (4, 4, 1),
        [{"kind": "flatten"}, {"kind": "dense", "size": 10}, {"kind": "group-norm", "groups": 2}],
    ),
}
EVERY = pytest.mark.parametrize("net", list(NETS))


def build(net: str, ops: Ops) -> Model:
    shape, layers = NETS[net]
    given = {"kind": "layers", "shape": list(shape), "layers": [*layers, *LAST]}
    return MODELS["layers"].model_validate(given).build(int(np.prod(shape)), some_labels(CLASSES), ops)


def drawn(net: str) -> tuple[Any, Batch]:
    rng = np.random.default_rng(list(NETS).index(net))
    parameters = trees.map(lambda leaf: rng.normal(0.2, 0.5, leaf.shape).astype(np.float32), build(net, NUMPY).zeros())
    rows = rng.normal(0, 1, (ROWS, int(np.prod(NETS[net][0])))).astype(np.float32)
    labels = np.resize(np.arange(CLASSES), ROWS).astype(np.int32)
    return parameters, Batch(rows=rows, targets=labels, mask=np.ones(ROWS, np.float32))


def convolved(given: dict[str, Any], parameters: Any, x: Any) -> Any:
    """One picture through JAX's own convolution; sparse connections as zeros in the weights."""
    layer = Convolution.model_validate(given)
    weights = parameters["w"]
    table = layer.table(x.shape[-1])
    if table is not None:
        weights = jnp.einsum("hwso,sco->hwco", weights, jnp.asarray(table))
    names = ("NHWC", "HWIO", "NHWC")
    strides = (layer.stride, layer.stride)
    lines = layer.padding
    around = lines.upper() if isinstance(lines, str) else ((lines, lines), (lines, lines))
    y = lax.conv_general_dilated(x[None], weights, strides, around, dimension_numbers=names)[0]
    return y + parameters.get("b", 0.0)


def pooled(given: dict[str, Any], x: Any) -> Any:
    size, stride = given.get("size", 2), given.get("stride", given.get("size", 2))
    around = given.get("padding", "valid").upper()
    window, steps = (size, size, 1), (stride, stride, 1)
    if given.get("of") == "average":
        return lax.reduce_window(x, 0.0, lax.add, window, steps, around) / size**2
    return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, around)


def normed(given: dict[str, Any], layer: Any, x: Any) -> Any:
    groups = x.reshape(*x.shape[:-1], given["groups"], -1)
    axes = (*range(x.ndim - 1), x.ndim)
    unit = (groups - groups.mean(axes, keepdims=True)) / jnp.sqrt(groups.var(axes, keepdims=True) + 1e-5)
    return unit.reshape(x.shape) * layer.get("scale", 1.0) + layer.get("shift", 0.0)


def written_out(net: str, parameters: Any, row: Any, label: Any) -> Any:
    shape, layers = NETS[net]
    x = row.reshape(shape)
    for given, layer in zip([*layers, *LAST], parameters, strict=True):
        if given["kind"] == "convolution":
            x = convolved(given, layer, x)
        elif given["kind"] == "pooling":
            x = pooled(given, x)
        elif given["kind"] == "group-norm":
            x = normed(given, layer, x)
        elif given["kind"] == "dense":
            x = layer["w"] @ x + layer["b"]
        else:
            x = x.ravel() if given["kind"] == "flatten" else jnp.tanh(x)
    return -jax.nn.log_softmax(x)[label]


@functools.cache
def oracle(net: str) -> Any:
    parameters, batch = drawn(net)
    one = jax.grad(functools.partial(written_out, net))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))(parameters, batch.rows, batch.targets))


@BOTH
@EVERY
def test_gradients_norms_and_totals_are_those_of_automatic_differentiation(net: str, ops: Ops) -> None:
    require_gradients(oracle(net), build(net, ops), *drawn(net), ops)


@pytest.mark.parametrize(("net", "by_gram"), [("gram", True), ("one", False), ("sparse", False)])
def test_norms_are_found_the_cheaper_way(net: str, by_gram: bool) -> None:
    parameters, batch = drawn(net)
    first = build(net, NUMPY).gradients(parameters, batch).layers[0]
    assert isinstance(first, ConvolutionFactors) and first.by_gram == by_gram


def test_few_filters_are_multiplied_in_bands() -> None:
    def places_of_a_band(filters: int, width: int, channels: int = 1) -> int | None:
        found = bands(windows((9, width, channels), 3, 1, "same"), channels, filters)
        return found.width if found else None

    assert places_of_a_band(6, 12) == 4  # 24 columns
    assert places_of_a_band(16, 12) == 2
    assert places_of_a_band(1, 9) == 9  # there are no more
    assert places_of_a_band(6, 17) is None  # a band as long as the line would be zeros for the most part
    assert places_of_a_band(17, 12) is None
    assert places_of_a_band(6, 12, channels=9) is None


@BOTH
def test_many_pictures_are_predicted_in_parts(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, _ = drawn("max")
    model = build("max", ops)
    per_row = model.features + sum(math.prod(layer.shape) for layer in model.layers)
    monkeypatch.setattr("crowdml.models.model.NUMBERS_AT_ONCE", 250 * per_row)
    assert model.rows_at_once == 250
    rows = np.random.default_rng(3).normal(0, 1, (613, 8 * 8 * 2)).astype(np.float32)
    outputs = model.outputs(parameters, rows)
    one_by_one = [model.outputs(parameters, rows[at : at + 1])[:, 0] for at in (0, 249, 250, 499, 612)]
    close(np.asarray(outputs)[:, [0, 249, 250, 499, 612]], np.stack(one_by_one, axis=1))
    np.testing.assert_array_equal(model.predict(parameters, rows), model.loss.predict(outputs))


@BOTH
@pytest.mark.parametrize("flat", [False, True])
def test_batch_normalisation_learns_from_the_batch_and_predicts_from_what_it_remembers(ops: Ops, flat: bool) -> None:
    before: list[dict[str, Any]] = [{"kind": "flatten"}, {"kind": "dense", "size": 4}] if flat else []
    if not flat:
        before = [{"kind": "convolution", "size": 4}]
    given = {"kind": "layers", "shape": [4, 4, 2], "layers": [*before, {"kind": "batch-norm"}, *LAST]}
    model = MODELS["layers"].model_validate(given).build(32, some_labels(CLASSES), ops)
    rng = np.random.default_rng(0)
    parameters = trees.map(lambda leaf: rng.normal(0.3, 0.4, leaf.shape).astype(np.float32), model.zeros())
    rows = rng.normal(0, 1, (6, 32)).astype(np.float32)
    labels, mask = np.array([0, 1, 2, 0, 1, 2], np.int32), np.array([1, 1, 1, 1, 0, 0], np.float32)
    at = len(before)

    def written(candidate: Any) -> Any:
        x = jnp.asarray(rows[:4]).reshape(4, 4, 4, 2)
        x = (
            jnp.einsum("nj,ij->ni", x.reshape(4, -1), candidate[1]["w"]) + candidate[1]["b"]
            if flat
            else jax.vmap(lambda one: convolved({"kind": "convolution", "size": 4}, candidate[0], one))(x)
        )
        axes = tuple(range(x.ndim - 1))
        x = (x - x.mean(axes)) / jnp.sqrt(x.var(axes) + 1e-5) * candidate[at]["scale"] + candidate[at]["shift"]
        scores = x.reshape(4, -1) @ candidate[-1]["w"].T + candidate[-1]["b"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), jnp.asarray(labels[:4, None]), 1))

    found = model.gradients(parameters, Batch(rows=rows, targets=labels, mask=mask)).total(mask / 4)
    expected = jax.grad(written)(jax.tree.map(jnp.asarray, parameters))
    for leaf, other in zip(found, expected, strict=True):
        for name in set(leaf) - {"mean", "variance"}:
            scale = float(np.abs(other[name]).max())
            np.testing.assert_allclose(leaf[name], other[name], rtol=1e-4, atol=1e-5 * scale + 2e-7)
    # One step of rate 1 makes what is remembered that of the batch; then both calculations agree.
    moved = [dict(layer) for layer in parameters]
    for name in ("mean", "variance"):
        moved[at][name] = parameters[at][name] - np.asarray(found[at][name])
    learning = model.gradients(tuple(moved), Batch(rows=rows, targets=labels, mask=mask)).outputs
    np.testing.assert_allclose(
        np.asarray(model.outputs(tuple(moved), rows))[:, :4], np.asarray(learning)[:, :4], rtol=1e-4, atol=1e-5
    )
    assert model.mixes


BAD: dict[str, tuple[list[dict[str, Any]], str]] = {
    "flat": ([{"kind": "flatten"}, {"kind": "convolution", "size": 2}], "takes pictures"),
    "zeros only": ([{"kind": "convolution", "size": 2, "padding": 3}], "see nothing but zeros"),
    "large": ([{"kind": "convolution", "size": 2, "kernel": 9, "padding": "valid"}], "does not fit"),
    "groups": ([{"kind": "convolution", "size": 3}, {"kind": "group-norm", "groups": 2}], "cannot be shared out"),
    "average": ([{"kind": "pooling", "of": "average", "size": 3, "stride": 2, "padding": "same"}], "no one meaning"),
    "connections": ([{"kind": "convolution", "size": 2, "connections": [[0], [2]]}], "equally many"),
    "uneven": ([{"kind": "convolution", "size": 2, "connections": [[0], [0, 1]]}], "equally many"),
    "too many": ([{"kind": "convolution", "size": 2, "connections": 3}], "equally many"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_what_does_not_fit_is_refused(case: str) -> None:
    layers, words = BAD[case]
    given = {"kind": "layers", "shape": [4, 4, 2], "layers": [*layers, *LAST]}
    with pytest.raises(BadInput, match=words):
        MODELS["layers"].model_validate(given).build(32, some_labels(CLASSES), NUMPY)


def test_the_nets_of_the_papers() -> None:
    """The sparse convolutions of SliceNet, and the net of ODPFL: two convolutions, three dense layers."""
    sliced = MODELS["cnn"].model_validate(
        {"kind": "cnn", "shape": [32, 32, 3], "convolutions": [16, 128], "kernel": 5, "connections": [1, 4]}
    )
    shapes = [leaf.shape for leaf in trees.leaves(sliced.build(3072, some_labels(10), NUMPY).zeros()[:4])]
    assert shapes == [(16,), (5, 5, 1, 16), (128,), (5, 5, 4, 128)]
    tutorial = (
        MODELS["cnn"]
        .model_validate(
            {
                "kind": "cnn",
                "shape": [32, 32, 3],
                "convolutions": [64, 64],
                "kernel": 5,
                "pool-size": 3,
                "pool-stride": 2,
                "layers": [384, 192],
                "activation": "relu",
            }
        )
        .build(3072, some_labels(10), NUMPY)
    )
    assert [layer.shape for layer in tutorial.layers if len(layer.shape) == 3][::3] == [(32, 32, 64), (16, 16, 64)]
    assert tutorial.layers[-1].shape == (10,)
