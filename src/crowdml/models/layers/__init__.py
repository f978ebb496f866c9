"""Layers by name. A new one is a file beside these and a line below."""

from __future__ import annotations

from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense, Flatten, Relu, Sigmoid, Tanh
from crowdml.models.layers.layer import LAYERS as LAYERS
from crowdml.models.layers.layer import Factors as Factors
from crowdml.models.layers.layer import Layer as Layer
from crowdml.models.layers.layer import LayerSettings as LayerSettings
from crowdml.models.layers.layer import Shape as Shape
from crowdml.models.layers.normalisation import BatchNorm, GroupNorm
from crowdml.models.layers.pooling import Pooling
from crowdml.models.layers.residual import Residual
from crowdml.models.layers.series import SeriesConvolution

_ALL: dict[str, type[LayerSettings]] = {
    "dense": Dense,
    "convolution": Convolution,
    "convolution-1d": SeriesConvolution,
    "pooling": Pooling,
    "group-norm": GroupNorm,
    "batch-norm": BatchNorm,
    "tanh": Tanh,
    "sigmoid": Sigmoid,
    "relu": Relu,
    "flatten": Flatten,
    "residual": Residual,
}
for _name, _layer in _ALL.items():
    LAYERS.add(_name, _layer)
Residual.model_rebuild()
