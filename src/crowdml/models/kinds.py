"""The kinds of model a task file may name, each a short way to declare layers and a loss."""

from __future__ import annotations

import abc
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from crowdml.core import BadInput, Labels, OneOf, Ops, Registry, Settings, Target
from crowdml.core.registry import nearest
from crowdml.core.settings import NameIn
from crowdml.models.adapters.start_files import begun_with, from_text, layout_of, require_layout
from crowdml.models.adapters.user_model import USER_MODELS, UserModel, absent
from crowdml.models.layers import LAYERS, LayerSettings
from crowdml.models.layers.convolution import Convolution
from crowdml.models.layers.dense import Dense, Flatten
from crowdml.models.layers.normalisation import BatchNorm, GroupNorm
from crowdml.models.layers.pooling import Padding, Pooling
from crowdml.models.losses import LOSSES, Loss, huber
from crowdml.models.model import Model, build


class ModelSettings(Settings):
    """The interface of all kinds of model, and the keys they share. A leaf class is final."""

    kind: str
    regularisation: float = Field(0.0, ge=0, description="strength λ of ½ λ ‖w‖²; biases are left out")

    @abc.abstractmethod
    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model that maps rows of `features` numbers to the target."""


Start = Literal["zero", "random"]
START: Start = Field(
    "zero",
    description="first weights: zero, which is as good as any where the loss is convex, and the same for every seed; "
    "or random, uniform ±√(6/(in+out)), as Crowd-ML 2015 begins",
)


def _linear(loss: Loss, bias: bool, start: Start, features: int, ops: Ops) -> Model:
    return build((Dense(size=loss.width, bias=bias, start=start),), loss, features, ops)


class _LinearSettings(ModelSettings):
    """What kinds of one dense layer have in common: the loss over it, by its name."""

    loss_name: ClassVar[str]
    bias: bool = Field(False, description="add a constant to the score")
    start: Start = START

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make one dense layer with as many outputs as the loss needs."""
        return _linear(LOSSES[self.loss_name](target, ops), self.bias, self.start, features, ops)


class Softmax(_LinearSettings):
    """Multi-class logistic regression."""

    kind: Literal["softmax"] = "softmax"
    loss_name: ClassVar[str] = "softmax"
    bias: bool = Field(False, description="a constant per label; doubles the L1 sensitivity when rows have norm 1")


class Logistic(_LinearSettings):
    """Logistic regression for two labels."""

    kind: Literal["logistic"] = "logistic"
    loss_name: ClassVar[str] = "logistic"


class Svm(_LinearSettings):
    """Soft-margin support vector machine for two labels."""

    kind: Literal["svm"] = "svm"
    loss_name: ClassVar[str] = "hinge"
    bias: bool = Field(True, description="add a constant to the score")


class Huber(_LinearSettings):
    """Least squares for two labels, ±1, where far residuals count linearly (Huber's loss)."""

    kind: Literal["huber"] = "huber"
    loss_name: ClassVar[str] = "huber"


class Linear(ModelSettings):
    """Linear regression of a number; with `regularisation` it is ridge regression."""

    kind: Literal["linear"] = "linear"
    loss: Literal["squared", "huber"] = Field(
        "squared", description="squares, whose gradients have no bound of their own; or Huber's loss, whose have"
    )
    delta: float = Field(
        1.0,
        gt=0,
        le=2,
        description="with Huber's loss: residuals beyond this count linearly; 2 is the whole range of the target, so "
        "that all residuals within it are squared",
    )
    bias: bool = Field(True, description="add a constant to the output")
    start: Start = START

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make one dense layer with one output."""
        if isinstance(target, Labels):
            raise BadInput(
                f"this model predicts a number, and the task has {target.bins} labels",
                where="model.kind",
                hint='use kind = "softmax"; or give target = { name = "…", low = 0.0, high = 1.0 } instead of labels',
            )
        loss = huber(target, ops, self.delta) if self.loss == "huber" else LOSSES[self.loss](target, ops)
        return _linear(loss, self.bias, self.start, features, ops)


class Mlp(ModelSettings):
    """Multi-layer perceptron."""

    kind: Literal["mlp"] = "mlp"
    layers: list[Annotated[int, Field(gt=0, le=10_000_000)]] = Field([75, 75], description="sizes of the hidden layers")
    activation: Literal["tanh", "sigmoid", "relu"] = Field("relu", description="what follows each hidden layer")
    top: Annotated[str, NameIn(LOSSES)] = Field(
        "softmax",
        description="the loss: cross-entropy or sum of squares of labels; squares, or Huber's loss, of a number; "
        "logistic or hinge loss of two labels",
    )
    start: Literal["random", "fan-in"] = Field(
        "random", description="first weights: uniform ±√(6/(in+out)); or ±1/√in, biases as well (PyTorch's default)"
    )
    start_scale: float = Field(1.0, gt=0, description="factor on the first numbers")

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make hidden layers, each with its activation, and a last layer with as many outputs as the loss needs."""
        loss = LOSSES[self.top](target, ops)
        hidden: list[LayerSettings] = []
        for size in self.layers:
            hidden += [Dense(size=size, start=self.start, start_scale=self.start_scale), LAYERS[self.activation]()]
        last = Dense(size=loss.width, start=self.start, start_scale=self.start_scale)
        return build((*hidden, last), loss, features, ops)


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
    start: Literal["random", "fan-in"] = Field(
        "random", description="first weights: uniform ±√(6/(in+out)); or ±1/√in, biases as well (PyTorch's default)"
    )
    start_scale: float = Field(1.0, gt=0, description="factor on the first numbers")

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make convolutions, dense layers, and a last layer with one output per label."""
        seen: list[int] | list[None] = self.connections or [None] * len(self.convolutions)
        if len(seen) != len(self.convolutions):
            raise BadInput(f"{len(seen)} numbers for {len(self.convolutions)} convolutions", where="model.connections")
        made: list[LayerSettings] = []
        for size, connections in zip(self.convolutions, seen, strict=True):
            made.append(
                Convolution(
                    size=size,
                    kernel=self.kernel,
                    connections=connections,
                    start=self.start,
                    start_scale=self.start_scale,
                )
            )
            if self.norm != "none":
                made.append(GroupNorm(groups=self.groups) if self.norm == "group" else BatchNorm())
            made.append(LAYERS[self.activation]())
            padding: Padding = "valid" if self.pool_stride in (None, self.pool_size) else "same"
            made.append(Pooling(of=self.pool, size=self.pool_size, stride=self.pool_stride, padding=padding))
        made.append(Flatten())
        for size in self.layers:
            made += [Dense(size=size, start=self.start, start_scale=self.start_scale), LAYERS[self.activation]()]
        loss = LOSSES["softmax"](target, ops)
        last = Dense(size=loss.width, start=self.start, start_scale=self.start_scale)
        return build((*made, last), loss, features, ops, tuple(self.shape))


class Layers(ModelSettings):
    """A model declared layer by layer."""

    kind: Literal["layers"] = "layers"
    layers: list[Annotated[Any, OneOf(LAYERS)]] = Field(
        description="the layers in order, such as { kind = 'dense', size = 10 }"
    )
    loss: Annotated[str, NameIn(LOSSES)] = Field("softmax", description="the loss over the last layer")
    shape: list[Annotated[int, Field(gt=0)]] | None = Field(
        None, description="shape of one example; flat when not given"
    )

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the declared layers."""
        if not self.layers:
            raise BadInput("a model needs at least one layer", where="model.layers")
        shape = tuple(self.shape) if self.shape else None
        return build(tuple(self.layers), LOSSES[self.loss](target, ops), features, ops, shape)


class Own(ModelSettings):
    """A model of the user's own, of flax, equinox, PyTorch or plain JAX: handed in, or registered by name.

    A live task says its layout and first weights, so that a server needs neither model nor library.
    """

    kind: Literal["own"] = "own"
    name: str = Field("", description="the name under which it was registered; not given: it is handed in, in Python")
    layout: dict[str, list[Annotated[int, Field(ge=0)]]] = Field(
        {}, description="shapes of its arrays by name; `crowdml task create --start FILE` writes them"
    )
    start: str = Field(
        "", description="first weights as text; `crowdml task create --start FILE` writes it from a file of weights"
    )
    _given: UserModel | None = PrivateAttr(None)

    @property
    def given(self) -> UserModel | None:
        """The model that was handed in; None where it is to be found by its name."""
        return self._given

    def holding(self, model: UserModel) -> Own:
        """Return the same, with a model that is handed in."""
        made = self.model_copy()
        made._given = model
        return made

    @property
    def found(self) -> UserModel | None:
        """The model, handed in or registered; None where this machine has none."""
        return self._given or (USER_MODELS[self.name] if self.name in USER_MODELS else None)

    @property
    def present(self) -> bool:
        """Whether this machine has the model."""
        return self.found is not None

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model; where this machine has none, one of which nothing but the layout is known."""
        layout = {name: tuple(shape) for name, shape in self.layout.items()}
        if self.present:
            made = (self._given or USER_MODELS[self.name]).build(features, target, ops)
            if layout:
                require_layout(layout, layout_of(made), "the model here")
        elif layout:
            made = absent(self.name, layout, features, target, ops)
        elif not self.name:
            raise BadInput(
                "which model? None was handed in, and no name is given",
                where="model.name",
                hint='in Python: crowdml.simulate(task, model=…); in a file: name = "…" of a model that was registered',
            )
        else:
            raise BadInput(
                f'unknown {USER_MODELS.noun} "{self.name}"',
                where="model.name",
                hint=nearest(self.name, USER_MODELS)
                if USER_MODELS
                else "a file that registers it: CROWDML_PLUGINS=FILE.py; in Python: crowdml.simulate(task, model=…)",
            )
        if not self.start:
            return made
        return begun_with(made, from_text(self.start, layout or layout_of(made)))


MODELS: Registry[type[ModelSettings]] = Registry(
    "model",
    {
        "softmax": Softmax,
        "logistic": Logistic,
        "svm": Svm,
        "huber": Huber,
        "linear": Linear,
        "mlp": Mlp,
        "cnn": Cnn,
        "layers": Layers,
        "own": Own,
    },
)
