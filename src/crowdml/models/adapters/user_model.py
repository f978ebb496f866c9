"""A model of the user's own: a network of another library, as the one layer of a `Model`.

A library says four things of a network: its first parameters, how rows become outputs, and, given the slope of the loss
over the outputs, two gradients: their weighted sum, and that of each row by itself. Everything else is as for layers of
ours: clipping asks for norms of single rows, a server sees one vector. Parameters are arrays by name, sorted.

A machine that has no such model, such as a server, knows its layout alone (`absent`): it can add vectors up, and
refuses to look at rows.
"""

from __future__ import annotations

import abc
import functools
import importlib.util
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, Labels, Ops, Registry, Target, record
from crowdml.core.ops import Coins
from crowdml.core.trees import Array, Float, Tree
from crowdml.models.adapters.start_files import Layout
from crowdml.models.layers import Layer, Shape
from crowdml.models.losses import LOSSES, Loss
from crowdml.models.model import Model

ROWS = 2
"""Rows that a model is tried on before anything runs."""

Arrays = Mapping[str, npt.NDArray[np.float32]]


class UserModel(abc.ABC):
    """A model of the user's own, before it is known what rows look like. A leaf class is final."""

    @functools.cached_property
    def serial(self) -> str:
        """A number that no other model has."""
        return uuid.uuid4().hex[:12]

    @abc.abstractmethod
    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model that maps rows of `features` numbers to the target.

        Raises:
            BadInput: It does not fit rows, target or ops; says what.
        """


USER_MODELS: Registry[UserModel] = Registry("model of your own", {})
"""Models that were registered, by the name that `[model] name` says."""


@record
class Network:
    """What a library says of a network, for rows of one length and one kind of arrays.

    Attributes:
        layout: Shapes of its arrays.
        width: Number of outputs.
        init: `init(coins, stage)`: the first arrays, by name.
        forward: `forward(parameters, x)`: outputs of shape (width, size), and what gradients need to remember.
        total: `total(parameters, memory, slope, weights)`: the weighted sum of gradients, by name.
        each: `each(parameters, memory, slope)`: the gradient of each row, with rows as the first axis. It looks at one
            row at a time, so that nothing of a row is in the gradient of another.
        norms: `norms(parameters, memory, slope, order)`: the norm of each row's gradient in L1, or its square in L2;
            None where it is found from the gradients.
        learn: `learn(parameters, x, mask)` stands for `forward` while the model learns, where that is another one.
        by_row: Whether `forward` and `total` look at one row at a time, too, whatever the network is.
        mixes: Whether the outputs of a row depend on the other rows of its batch while the model learns.
        numpy_only: Whether it takes NumPy arrays alone, so that nothing can be compiled around it.
    """

    layout: Layout
    width: int
    init: Callable[[Coins, str], Tree]
    forward: Callable[[Tree, Array], tuple[Array, Any]]
    total: Callable[[Tree, Any, Array, Array], Tree]
    each: Callable[[Tree, Any, Array], Tree]
    norms: Callable[[Tree, Any, Array, int], Array] | None = None
    learn: Callable[[Tree, Array, Array], tuple[Array, Any]] | None = None
    by_row: bool = False
    mixes: bool = False
    numpy_only: bool = False


@record
class NetworkFactors:
    """Gradients of a batch, worked out when somebody asks: the sum, or those of single rows."""

    network: Network
    parameters: Tree
    memory: Any
    slope: Array
    ops: Ops

    @functools.cached_property
    def each(self) -> Tree:
        """The gradient of each row, by name."""
        return self.network.each(self.parameters, self.memory, self.slope)

    def squared_norms(self) -> Float[Array, " size"]:
        """Add up squares."""
        return self._norms(2)

    def absolute_norms(self) -> Float[Array, " size"]:
        """Add up absolute values."""
        return self._norms(1)

    def rows(self) -> Tree:
        """Return the gradient of each row."""
        return self.each

    def total(self, weights: Float[Array, " size"]) -> Tree:
        """Sum up; where single rows were looked at, theirs is the sum, whatever a network does with a whole batch."""
        if self.network.by_row or "each" not in self.__dict__:
            return self.network.total(self.parameters, self.memory, self.slope, weights)
        return {
            name: self.ops.dot(weights[None], rows.reshape(len(rows), -1)).reshape(rows.shape[1:])
            for name, rows in self.each.items()
        }

    def _norms(self, order: int) -> Array:
        if self.network.norms is not None:
            return self.network.norms(self.parameters, self.memory, self.slope, order)
        flat = [rows.reshape(len(rows), -1) for rows in self.each.values()]
        return sum(self.ops.xp.sum(rows * rows if order == 2 else self.ops.xp.abs(rows), axis=1) for rows in flat)


def model_of(network: Network, loss: Loss, features: int, shape: Shape | None, ops: Ops) -> Model:
    """Make a model of one layer: the network."""
    layer = Layer(
        shape=(network.width,),
        init=network.init,
        forward=network.forward,
        pull_back=_first_of_all,
        factors=lambda parameters, memory, slope: NetworkFactors(
            network=network, parameters=parameters, memory=memory, slope=slope, ops=ops
        ),
        learn=network.learn,
        mixes=network.mixes,
        numpy_only=network.numpy_only,
    )
    weights = {f"0/{name}" for name, of in network.layout.items() if len(of) > 1}
    return Model(
        layers=(layer,),
        loss=loss,
        ops=ops,
        features=features,
        shape=shape or (features,),
        declared=(),
        decays=weights.__contains__,
    )


def _first_of_all(parameters: Tree, memory: Tree, slope: Array) -> NoReturn:
    raise ValueError("nothing stands before a network of the user's own")


def require_library(name: str, command: str) -> None:
    """Refuse a model whose library is not installed; say the command that installs it."""
    if importlib.util.find_spec(name) is None:
        raise BadInput(f"this model needs {name}, which is not installed here", where="model", hint=command)


def require_shape(shape: Shape | None, features: int) -> None:
    """Refuse a shape that a row does not have."""
    if shape is None:
        return
    if not isinstance(shape, Sequence) or not all(isinstance(one, int) and one > 0 for one in shape):
        raise BadInput(
            f"{shape!r} is no shape of an example", where="model", hint="whole numbers above zero, such as (28, 28, 1)"
        )
    if int(np.prod(shape)) != features:
        raise BadInput(
            f"the shape {list(shape)} holds {int(np.prod(shape))} numbers, a row has {features}",
            where="model",
            hint="their product must be the number of features",
        )


def default_loss(target: Target) -> str:
    """Name the loss that fits the target where nobody says: cross-entropy for labels, the square for a number."""
    return "softmax" if isinstance(target, Labels) else "squared"


def loss_of(given: Any, target: Target, ops: Ops, slope: Callable[[Any], Callable[[Array, Array], Array]]) -> Loss:
    """Make a loss over outputs of shape (width, size).

    Args:
        given: Its name; a function `loss(outputs, targets)` of the library, one number for each row, over outputs of
            shape (size, width); or None: what fits the target.
        target: What is predicted.
        ops: Array operations.
        slope: `slope(given)`: the function's gradient with respect to outputs of shape (width, size).
    """
    by_default = LOSSES[default_loss(target)](target, ops)
    if given is None:
        return by_default
    if isinstance(given, str):
        return LOSSES[given](target, ops)
    if not callable(given):
        raise BadInput(
            f"the loss is {type(given).__name__}, neither a name nor a function (outputs, targets)", where="model"
        )
    return Loss(
        target=target,
        width=by_default.width,
        values=lambda outputs, targets: given(outputs.T, targets),
        slope=slope(given),
        predict=by_default.predict,
        slope_bound=None,
    )


def handed_over(target: Target, ops: Ops, values: Callable[[Array, Array], Array], scored: bool = False) -> Loss:
    """Make the loss of a model that finds its gradient by itself: the target stands in place of a slope.

    Args:
        target: What is predicted.
        ops: Array operations.
        values: Refuses: such a loss does not follow from outputs.
        scored: Whether there is an output for each label, the largest of which is predicted; otherwise the one output
            is the prediction.
    """
    xp = ops.xp

    def predict(outputs: Array) -> Array:
        if scored:
            return xp.argmax(outputs, axis=0)
        return outputs[0].astype(xp.int32) if isinstance(target, Labels) else xp.clip(outputs[0], -1, 1)

    return Loss(
        target=target,
        width=target.bins if scored else 1,
        values=values,
        slope=lambda outputs, targets: targets[None].astype(xp.float32),
        predict=predict,
        slope_bound=None,
    )


def called(what: str, function: Callable[[], Any]) -> Any:
    """Call somebody else's code; what it raises becomes a sentence."""
    try:
        return function()
    except BadInput:
        raise
    except Exception as error:  # whatever somebody else's code raises
        said = " ".join(str(error).split())
        raise BadInput(f"{what} fails: {type(error).__name__}: {said[:300]}", where="model") from error


def require_arrays(what: str, arrays: Mapping[str, Any]) -> None:
    """Refuse parameters that are no finite float32 numbers."""
    if not arrays:
        raise BadInput(f"{what} has nothing to learn: it has no array of floats", where="model")
    for name, array in arrays.items():
        if np.dtype(array.dtype) != np.float32:
            raise BadInput(
                f'{what}: the array "{name}" holds {array.dtype} numbers', where="model", hint="float32 is what travels"
            )
        if not np.isfinite(np.asarray(array)).all():
            raise BadInput(f'{what}: the first weights in "{name}" are not all finite', where="model")


def require_finite_gradient(what: str, gradient: Mapping[str, Any]) -> None:
    """Refuse a gradient at a row of zeros that is not finite."""
    for name, array in gradient.items():
        if not np.isfinite(np.asarray(array)).all():
            raise BadInput(
                f'{what}: for a row of zeros the gradient of "{name}" is not finite',
                where="model",
                hint="batches are filled up with such rows: no division by the length of a row, no logarithm of it",
            )


def require_outputs(what: str, found: tuple[int, ...], rows: int, loss: Loss) -> None:
    """Refuse outputs that are not one row of numbers, as many as the loss needs, for each row."""
    if tuple(found) != (rows, loss.width):
        raise BadInput(
            f"{what} gives outputs of shape {tuple(found)} for {rows} rows; the loss over {loss.target.described} "
            f"needs {(rows, loss.width)}",
            where="model",
            hint="change the size of its last layer, or the loss",
        )


def require_rows_apart(loss: Loss) -> None:
    """Refuse a loss of which one row's number depends on other rows: then no bound on a row's gradient holds."""
    labels = isinstance(loss.target, Labels)
    targets = (np.arange(ROWS) if labels else np.linspace(-0.5, 0.5, ROWS)).astype(loss.target.dtype)
    outputs = np.sin(np.arange(1, loss.width * ROWS + 1, dtype=np.float32) ** 2).reshape(loss.width, ROWS)
    together = np.asarray(loss.values(outputs, targets))
    alone = [np.asarray(loss.values(outputs[:, [at]], targets[[at]]))[0] for at in range(ROWS)]
    if not np.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise BadInput(
            "the loss gives a row another number when another row stands beside it",
            where="model",
            hint="a loss is one number for each row, of its own outputs and its own target: no mean over rows",
        )


def require_per_row(what: str, found: tuple[int, ...], rows: int) -> None:
    """Refuse a loss that is not one number for each row."""
    if tuple(found) != (rows,):
        raise BadInput(
            f"{what} has shape {tuple(found)} for {rows} rows; it must be one number for each row, {(rows,)}",
            where="model",
            hint='no mean and no sum over rows: in PyTorch, reduction="none"',
        )


def absent(name: str, layout: Layout, features: int, target: Target, ops: Ops) -> Model:
    """Make a model of which nothing but the layout is known: for a server, and for a look at what is sent.

    It answers a batch without rows, and refuses any other.
    """
    plain = LOSSES[default_loss(target)](target, ops)

    def nothing(memory: Any, shape: tuple[int, ...] = ()) -> Tree:
        _, mask = memory
        if mask is None or np.asarray(mask).any():
            raise BadInput(
                f'this machine has no model "{name}" that it could show rows to',
                where="model",
                hint="hand it in (model=… of crowdml.Device, crowdml.simulate or crowdml.Result.load), or name a file "
                "that registers it: CROWDML_PLUGINS=FILE.py",
            )
        return {name: ops.xp.zeros((*shape, *of), dtype=ops.xp.float32) for name, of in layout.items()}

    def learn(parameters: Tree, x: Array, mask: Array | None) -> tuple[Array, Any]:
        nothing((x.shape[-1], mask))
        return ops.xp.zeros((plain.width, x.shape[-1]), dtype=ops.xp.float32), (x.shape[-1], mask)

    network = Network(
        layout=layout,
        width=plain.width,
        init=lambda coins, stage: nothing((0, ops.xp.zeros(0))),
        forward=lambda parameters, x: learn(parameters, x, None),
        learn=learn,
        total=lambda parameters, memory, slope, weights: nothing(memory),
        each=lambda parameters, memory, slope: nothing(memory, (memory[0],)),
        numpy_only=True,
    )
    return model_of(network, plain, features, None, ops)
