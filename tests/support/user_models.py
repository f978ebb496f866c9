"""The same MLP in several libraries, and weights of ours under each library's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdml.core import NUMPY
from crowdml.models import MODELS, Model
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from tests.support.targets import some_labels

FEATURES, HIDDEN, CLASSES = 6, 5, 3


def ours(ops: Any = NUMPY, features: int = FEATURES, hidden: int = HIDDEN, classes: int = CLASSES) -> Model:
    settings = MODELS["mlp"].model_validate({"kind": "mlp", "layers": [hidden], "activation": "relu"})
    return settings.build(features, some_labels(classes), ops)


def first(model: Model) -> Any:
    """First weights of ours, without a bias of zero, which would hide a mistake."""
    begun = model.init(HashCoins(trial_seed(0, 0), 0, NUMPY))
    return tuple(
        {name: leaf + (0.1 if name == "b" else 0.0) for name, leaf in layer.items()} for layer in np_leaves(begun)
    )


def np_leaves(parameters: Any) -> Any:
    return tuple({name: np.asarray(leaf, np.float32) for name, leaf in layer.items()} for layer in parameters)


def linen_mlp(hidden: int = HIDDEN, classes: int = CLASSES) -> Any:
    from flax import linen

    class MLP(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.relu(linen.Dense(hidden)(x))  # the first: names are given in this order
            return linen.Dense(classes)(x)

    return MLP()


def linen_arrays(parameters: Any) -> dict[str, Any]:
    """Ours are (outputs, inputs), flax's kernels (inputs, outputs)."""
    made: dict[str, Any] = {}
    for number, layer in enumerate(layer for layer in parameters if layer):
        made |= {f"Dense_{number}.kernel": layer["w"].T.copy(), f"Dense_{number}.bias": layer["b"]}
    return made


def nnx_mlp(rngs: Any, features: int = FEATURES) -> Any:
    from flax import nnx

    class MLP(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Linear(features, HIDDEN, rngs=rngs)
            self.last = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.last(nnx.relu(self.first(x)))

    return MLP(rngs)


def nnx_arrays(parameters: Any) -> dict[str, Any]:
    names = {"Dense_0": "first", "Dense_1": "last"}
    return {
        f"{names[layer]}.{name}": array
        for (layer, name), array in ((path.split("."), array) for path, array in linen_arrays(parameters).items())
    }


def equinox_mlp(key: Any) -> Any:
    import equinox as eqx
    import jax

    return eqx.nn.MLP(FEATURES, CLASSES, HIDDEN, 1, activation=jax.nn.relu, key=key)


def equinox_arrays(parameters: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for number, layer in enumerate(layer for layer in parameters if layer):
        made |= {f"layers.{number}.weight": layer["w"], f"layers.{number}.bias": layer["b"]}
    return made


def torch_mlp(features: int = FEATURES, hidden: int = HIDDEN, classes: int = CLASSES) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def torch_arrays(parameters: Any) -> dict[str, Any]:
    return {
        f"{number}.{name}": layer[of]
        for number, layer in enumerate(parameters)
        if layer
        for name, of in (("weight", "w"), ("bias", "b"))
    }


def jax_functions() -> dict[str, Any]:
    """The same as plain functions of one row, over nested tuples and dicts."""
    import jax
    import jax.numpy as jnp

    def init(key: Any) -> Any:
        one, two = jax.random.split(key)
        sizes = ((one, HIDDEN, FEATURES), (two, CLASSES, HIDDEN))
        return [{"w": jax.random.normal(key, (rows, of)), "b": jnp.zeros(rows)} for key, rows, of in sizes]

    def scores(parameters: Any, x: Any) -> Any:
        first, last = parameters
        return last["w"] @ jax.nn.relu(first["w"] @ x + first["b"]) + last["b"]

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(scores(parameters, x))[y]

    def predict(parameters: Any, x: Any) -> Any:
        return jnp.argmax(scores(parameters, x))

    return {"init": init, "loss": loss, "predict": predict}


def jax_arrays(parameters: Any) -> dict[str, Any]:
    layers = [layer for layer in parameters if layer]
    return {f"{number}.{name}": layer[name] for number, layer in enumerate(layers) for name in ("w", "b")}
