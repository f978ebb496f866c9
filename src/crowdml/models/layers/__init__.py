"""Layers by name. A new one is a file beside these and a line below."""

from __future__ import annotations

from typing import Protocol

from crowdml.core import Ops, Registry
from crowdml.models.layers.activations import Flatten, Relu, Sigmoid, Tanh
from crowdml.models.layers.contract import Factors as Factors
from crowdml.models.layers.contract import Layer as Layer
from crowdml.models.layers.contract import Shape as Shape
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense
from crowdml.models.layers.normalisation import BatchNorm, GroupNorm
from crowdml.models.layers.pooling import Pooling


class LayerSettings(Protocol):
    """Settings from which a layer is built."""

    def build(self, shape: Shape, ops: Ops) -> Layer:
        """Make the layer for examples of the given shape."""
        ...


LAYERS: Registry[type[LayerSettings]] = Registry(
    "layer",
    {
        "dense": Dense,
        "convolution": Convolution,
        "pooling": Pooling,
        "group-norm": GroupNorm,
        "batch-norm": BatchNorm,
        "tanh": Tanh,
        "sigmoid": Sigmoid,
        "relu": Relu,
        "flatten": Flatten,
    },
)
