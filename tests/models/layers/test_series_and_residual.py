"""Series and residual layers: gradients of every example against `vmap(grad)` of the same net in JAX's own words."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Batch, Ops, trees
from crowdml.models import MODELS, Model
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.slicing.stages import stages
from tests.support.gradients import require_gradients
from tests.support.targets import some_labels

# isort: split
import jax
import jax.numpy as jnp
from jax import lax

ROWS, CLASSES = 5, 3
LAST: list[dict[str, Any]] = [{"kind": "flatten"}, {"kind": "dense", "size": CLASSES}]
SERIES = {"kind": "convolution-1d", "size": 3}
SAME: dict[str, Any] = {"kind": "convolution-1d", "size": 2}

# A name, the shape of an example, and the layers before the last.
NETS: dict[str, tuple[tuple[int, ...], list[dict[str, Any]]]] = {
    "one": ((9, 2), [SERIES]),
    "strides": (
        (11, 2),
        [
            {**SERIES, "kernel": 4, "stride": 3},
            {"kind": "tanh"},
            {"kind": "convolution-1d", "size": 4, "kernel": 2, "stride": 2, "padding": "valid", "bias": False},
        ],
    ),
    "stride beyond the kernel": ((10, 2), [{**SERIES, "kernel": 2, "stride": 4, "padding": "valid"}, SERIES]),
    "second": ((9, 2), [SERIES, {"kind": "tanh"}, {**SERIES, "kernel": 5}]),
    "gram": ((4, 10), [{"kind": "convolution-1d", "size": 12, "kernel": 2, "stride": 2}]),
    "group-norm": ((6, 2), [{"kind": "convolution-1d", "size": 4}, {"kind": "group-norm", "groups": 2}]),
    "dense residual": (
        (5,),
        [
            {
                "kind": "residual",
                "layers": [{"kind": "dense", "size": 7}, {"kind": "tanh"}, {"kind": "dense", "size": 5}],
            }
        ],
    ),
    "residual of a series": ((6, 2), [SAME, {"kind": "residual", "layers": [{"kind": "tanh"}, SAME]}]),
    "residual of pictures": (
        (4, 4, 2),
        [{"kind": "residual", "layers": [{"kind": "convolution", "size": 2}, {"kind": "tanh"}]}],
    ),
    "residual in a residual": (
        (6, 2),
        [SAME, {"kind": "residual", "layers": [SAME, {"kind": "residual", "layers": [{"kind": "tanh"}, SAME]}]}],
    ),
    "residual without parameters": ((6, 2), [SAME, {"kind": "residual", "layers": [{"kind": "tanh"}]}]),
}
COMPILED = ("strides", "residual in a residual")
EVERY = pytest.mark.parametrize(
    ("net", "ops"), [(net, NUMPY) for net in NETS] + [(net, JAX) for net in COMPILED], ids=lambda part: str(part)[:30]
)


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


def through(layers: list[dict[str, Any]], parameters: Any, x: Any) -> Any:
    for given, layer in zip(layers, parameters, strict=True):
        around = given.get("padding", "same").upper()
        if given["kind"] == "convolution-1d":
            names, stride = ("NHC", "HIO", "NHC"), (given.get("stride", 1),)
            x = lax.conv_general_dilated(x[None], layer["w"], stride, around, dimension_numbers=names)[0]
            x = x + layer.get("b", 0.0)
        elif given["kind"] == "convolution":
            x = lax.conv_general_dilated(
                x[None], layer["w"], (1, 1), around, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = x[0] + layer["b"]
        elif given["kind"] == "group-norm":
            groups = x.reshape(*x.shape[:-1], given["groups"], -1)
            unit = (groups - groups.mean((0, 2), keepdims=True)) / jnp.sqrt(groups.var((0, 2), keepdims=True) + 1e-5)
            x = unit.reshape(x.shape) * layer["scale"] + layer["shift"]
        elif given["kind"] == "residual":
            x = x + through(given["layers"], layer, x)
        elif given["kind"] == "dense":
            x = layer["w"] @ x + layer["b"]
        else:
            x = x.ravel() if given["kind"] == "flatten" else jnp.tanh(x)
    return x


@functools.cache
def oracle(net: str) -> Any:
    shape, layers = NETS[net]
    parameters, batch = drawn(net)

    def loss(candidate: Any, row: Any, label: Any) -> Any:
        return -jax.nn.log_softmax(through([*layers, *LAST], candidate, row.reshape(shape)))[label]

    found = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))(parameters, batch.rows, batch.targets)
    return jax.tree.map(np.asarray, found)


@EVERY
def test_gradients_norms_and_totals_are_those_of_automatic_differentiation(net: str, ops: Ops) -> None:
    require_gradients(oracle(net), build(net, ops), *drawn(net), ops)


def test_weights_inside_decay_and_biases_do_not() -> None:
    model = build("residual of a series", NUMPY)
    ones = trees.map(np.ones_like, model.zeros())
    decay = dict(trees.paths(model.regulariser(ones, 0.5)))
    assert decay["1/1/w"].min() == 0.5 and decay["1/1/b"].max() == 0.0


def test_a_residual_layer_around_batch_normalisation_mixes() -> None:
    given = {"kind": "layers", "layers": [{"kind": "residual", "layers": [{"kind": "batch-norm"}]}, *LAST[1:]]}
    model = MODELS["layers"].model_validate(given).build(4, some_labels(CLASSES), NUMPY)
    assert model.mixes
    rows = np.random.default_rng(0).normal(3, 1, (6, 4)).astype(np.float32)
    batch = Batch(rows=rows, targets=np.zeros(6, np.int32), mask=np.ones(6, np.float32))
    ones = trees.map(np.ones_like, model.zeros())
    learnt, _ = model.layers[0].learn(ones[0], rows.T, batch.mask)  # type: ignore[misc]
    np.testing.assert_allclose(learnt.mean(axis=1), rows.mean(axis=0) + 1, rtol=1e-5)  # the shift alone is left


BAD: dict[str, tuple[list[int], list[dict[str, Any]], str]] = {
    "no series": ([4, 4, 2], [SERIES], "takes series"),
    "long": ([4, 2], [{**SERIES, "kernel": 9, "padding": "valid"}], "does not fit"),
    "no sum": ([4, 2], [{"kind": "residual", "layers": [SERIES]}], "cannot be added up"),
    "empty": ([4, 2], [{"kind": "residual", "layers": []}], "has no layers inside"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_what_does_not_fit_is_refused(case: str) -> None:
    shape, layers, words = BAD[case]
    given = {"kind": "layers", "shape": shape, "layers": [*layers, *LAST]}
    with pytest.raises(BadInput, match=words):
        MODELS["layers"].model_validate(given).build(int(np.prod(shape)), some_labels(CLASSES), NUMPY)


def test_a_net_with_such_layers_is_not_cut() -> None:
    inner = {"kind": "residual", "layers": [{"kind": "dense", "size": 4}]}
    given = {"kind": "layers", "layers": [{"kind": "dense", "size": 4}, inner, *LAST[1:]]}
    model = MODELS["layers"].model_validate(given).build(6, some_labels(CLASSES), NUMPY)
    with pytest.raises(BadInput, match="a residual layer cannot be cut"):
        stages(model)


@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        (None, [{"kind": "residual", "layers": [{"kind": "dense", "size": 3}]}]),
        (
            [3, 1],
            [{"kind": "convolution-1d", "size": 1, "kernel": 3, "padding": "valid"}, {"kind": "flatten"}],
        ),
    ],
)
def test_nothing_is_claimed_of_gradients_behind_them(shape: list[int] | None, layers: list[Any]) -> None:
    """Outputs may be linear in the weights there, too; no bound is proven, so sound mode asks for a clip."""
    loss = "logistic" if shape else "softmax"
    settings = MODELS["layers"].model_validate({"kind": "layers", "layers": layers, "shape": shape, "loss": loss})
    model = settings.build(3, some_labels(2 if shape else 3), NUMPY)
    assert not model.linear
    assert model.gradient_bound(1, 1.0) is None and model.gradient_bound(2, 1.0) is None
    assert model.smoothness(1.0) is None
