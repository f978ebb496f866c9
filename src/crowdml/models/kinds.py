"""The kinds of model a task file may name, each a short way to declare layers and a loss."""

from __future__ import annotations

import abc
from typing import Annotated, Any, Literal

from pydantic import Field

from crowdml.core import BadInput, Ops, Registry, Settings
from crowdml.core.settings import OneOf
from crowdml.models.layers import LAYERS, LayerSettings
from crowdml.models.layers.activations import Flatten
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense
from crowdml.models.layers.normalisation import BatchNorm, GroupNorm
from crowdml.models.layers.pooling import Pooling
from crowdml.models.layers.windows import Padding
from crowdml.models.losses import LOSSES, TWO_CLASS_LOSSES, Loss
from crowdml.models.model import Model, build


class ModelSettings(Settings):
    """The interface of all kinds of model, and the keys they share. A leaf class is final."""

    kind: str
    regularisation: float = Field(0.0, ge=0, description="strength λ of ½ λ ‖w‖²; biases are left out")

    @abc.abstractmethod
    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make the model for rows of `features` numbers and `classes` labels."""


def _loss(name: str, classes: int, ops: Ops) -> Loss:
    if name in TWO_CLASS_LOSSES and classes != 2:
        raise BadInput(
            f"this model separates two labels, the task has {classes}", where="model.kind", hint='use kind = "softmax"'
        )
    return LOSSES[name](classes, ops)


def _linear(loss_name: str, bias: bool, features: int, classes: int, ops: Ops) -> Model:
    loss = _loss(loss_name, classes, ops)
    # The losses are convex, so zero is as good a start as any, and the same for every seed.
    return build((Dense(size=loss.width, bias=bias, start="zero"),), loss, features, ops)


class Softmax(ModelSettings):
    """Multi-class logistic regression."""

    kind: Literal["softmax"] = "softmax"
    bias: bool = Field(False, description="a constant per label; doubles the L1 sensitivity when rows have norm 1")

    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make one dense layer with the softmax loss."""
        return _linear("softmax", self.bias, features, classes, ops)


class Logistic(ModelSettings):
    """Logistic regression for two labels."""

    kind: Literal["logistic"] = "logistic"
    bias: bool = Field(False, description="add a constant to the score")

    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make one dense layer with one output and the logistic loss."""
        return _linear("logistic", self.bias, features, classes, ops)


class Svm(ModelSettings):
    """Soft-margin support vector machine for two labels."""

    kind: Literal["svm"] = "svm"
    bias: bool = Field(True, description="add a constant to the score")

    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make one dense layer with one output and the hinge loss."""
        return _linear("hinge", self.bias, features, classes, ops)


class Huber(ModelSettings):
    """Least squares for two labels, ±1, where far residuals count linearly (Huber's loss)."""

    kind: Literal["huber"] = "huber"
    bias: bool = Field(False, description="add a constant to the score")

    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make one dense layer with one output and Huber's loss."""
        return _linear("huber", self.bias, features, classes, ops)


class Mlp(ModelSettings):
    """Multi-layer perceptron."""

    kind: Literal["mlp"] = "mlp"
    layers: list[Annotated[int, Field(gt=0, le=10_000_000)]] = Field([75, 75], description="sizes of the hidden layers")
    activation: Literal["tanh", "sigmoid", "relu"] = Field("relu", description="what follows each hidden layer")
    top: Literal["softmax", "squared"] = Field("softmax", description="the loss: cross-entropy or sum of squares")
    start_scale: float = Field(1.0, gt=0, description="factor on the first weights, which are uniform ±√(6/(in+out))")

    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make hidden layers, each with its activation, and a last layer with one output per label."""
        hidden: list[LayerSettings] = []
        for size in self.layers:
            hidden += [Dense(size=size, start_scale=self.start_scale), LAYERS[self.activation]()]
        last = Dense(size=classes, start_scale=self.start_scale)
        return build((*hidden, last), _loss(self.top, classes, ops), features, ops)


class Cnn(ModelSettings):
    """Convolutional net: convolutions, each with its activation and a pooling, then dense layers."""

    kind: Literal["cnn"] = "cnn"
    shape: list[Annotated[int, Field(gt=0)]] = Field(
        [28, 28, 1], min_length=3, max_length=3, description="height, width and channels of a picture"
    )
    convolutions: list[Annotated[int, Field(gt=0, le=100_000)]] = Field([16, 32], description="filters of each")
    kernel: int = Field(3, gt=0, le=64, description="height and width of a filter")
    connections: list[int] | None = Field(
        None, description="how many channels each filter sees, for each convolution; not given: all"
    )
    pool: Literal["max", "average"] = Field("max", description="what follows each convolution's activation")
    pool_size: int = Field(2, gt=0, description="height and width of a pooling window")
    pool_stride: int | None = Field(None, gt=0, description="step between pooling windows; not given: their size")
    norm: Literal["none", "group", "batch"] = Field("none", description="what stands between filters and activation")
    groups: int = Field(4, gt=0, description="groups of a group normalisation")
    layers: list[Annotated[int, Field(gt=0, le=10_000_000)]] = Field([32], description="sizes of the dense layers")
    activation: Literal["tanh", "sigmoid", "relu"] = Field("tanh", description="what follows each hidden layer")
    start_scale: float = Field(1.0, gt=0, description="factor on the first weights, which are uniform ±√(6/(in+out))")

    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make convolutions, dense layers, and a last layer with one output per label."""
        seen: list[int] | list[None] = self.connections or [None] * len(self.convolutions)
        if len(seen) != len(self.convolutions):
            raise BadInput(f"{len(seen)} numbers for {len(self.convolutions)} convolutions", where="model.connections")
        made: list[LayerSettings] = []
        for size, connections in zip(self.convolutions, seen, strict=True):
            made.append(
                Convolution(size=size, kernel=self.kernel, connections=connections, start_scale=self.start_scale)
            )
            if self.norm != "none":
                made.append(GroupNorm(groups=self.groups) if self.norm == "group" else BatchNorm())
            made.append(LAYERS[self.activation]())
            padding: Padding = "valid" if self.pool_stride in (None, self.pool_size) else "same"
            made.append(Pooling(of=self.pool, size=self.pool_size, stride=self.pool_stride, padding=padding))
        made.append(Flatten())
        for size in self.layers:
            made += [Dense(size=size, start_scale=self.start_scale), LAYERS[self.activation]()]
        last = Dense(size=classes, start_scale=self.start_scale)
        return build((*made, last), _loss("softmax", classes, ops), features, ops, tuple(self.shape))


class Layers(ModelSettings):
    """A model declared layer by layer."""

    kind: Literal["layers"] = "layers"
    layers: list[Annotated[Any, OneOf(LAYERS)]] = Field(
        description="the layers in order, such as { kind = 'dense', size = 10 }"
    )
    loss: Literal["softmax", "logistic", "hinge", "huber", "squared"] = Field(
        "softmax", description="the loss over the last layer"
    )
    shape: list[Annotated[int, Field(gt=0)]] | None = Field(
        None, description="shape of one example; flat when not given"
    )

    def build(self, features: int, classes: int, ops: Ops) -> Model:
        """Make the declared layers."""
        if not self.layers:
            raise BadInput("a model needs at least one layer", where="model.layers")
        shape = tuple(self.shape) if self.shape else None
        return build(tuple(self.layers), _loss(self.loss, classes, ops), features, ops, shape)


MODELS: Registry[type[ModelSettings]] = Registry(
    "model",
    {
        "softmax": Softmax,
        "logistic": Logistic,
        "svm": Svm,
        "huber": Huber,
        "mlp": Mlp,
        "cnn": Cnn,
        "layers": Layers,
    },
)
