"""Models of the user's own that JAX can trace: a loss function, or a module of flax or equinox.

Rows go through one by one (`vmap`), also for a module that takes batches: it sees batches of one. So no row can enter
the outputs or the gradient of another. In compiled simulations the functions are traced like any kernel; over NumPy
they are compiled by themselves, and arrays go there and back.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.core import BadInput, Coins, Labels, Ops, Target, record
from crowdml.core.errors import install
from crowdml.core.trees import Array, Tree
from crowdml.models.adapters.row_norms import gradient_norm
from crowdml.models.adapters.start_files import Layout, begun_at
from crowdml.models.adapters.user_model import (
    ROWS,
    Arrays,
    Network,
    UserModel,
    called,
    handed_over,
    loss_of,
    model_of,
    require_arrays,
    require_finite_gradient,
    require_library,
    require_outputs,
    require_per_row,
    require_rows_apart,
    require_shape,
)
from crowdml.models.layers import Shape
from crowdml.models.losses import Loss
from crowdml.models.model import Model

CACHE_NUMBERS = 1 << 19
"""Numbers of single rows' gradients that a core keeps near."""


@record
class Traced:
    """Functions over a tree of parameters, whatever its nodes are.

    Attributes:
        what: What to call the model in messages.
        init: `init(key)`: the first parameters.
        outputs: `outputs(parameters, x)`: of one row, shape (width,).
        loss: `loss(parameters, x, y)` of one row, where the loss does not follow from the outputs.
        whole: `whole(parameters, rows)`: outputs of several rows at once, shape (size, width), where the model can say
            so; to compare with.
    """

    what: str
    init: Callable[[Any], Tree]
    outputs: Callable[[Tree, Array], Array]
    loss: Callable[[Tree, Array, Array], Array] | None = None
    whole: Callable[[Tree, Array], Array] | None = None


@record
class JaxModel(UserModel):
    """A model as JAX functions of one row.

        crowdml.simulate(task, model=crowdml.JaxModel(init=init, loss=loss, predict=predict))

    Attributes:
        init: `init(key)`: the first parameters, any tree of float32 arrays.
        loss: `loss(parameters, x, y)`: one number. `x` is one row, `y` its class number, or a number from -1 to 1.
        predict: `predict(parameters, x)`: a class number, or a number from -1 to 1. Not given: the label whose loss is
            least, which takes as many losses as there are labels.
        shape: Shape of `x`; flat when not given.
        start: File of first weights, which takes the place of `init`'s numbers.
    """

    init: Callable[[Any], Any]
    loss: Callable[[Any, Any, Any], Any]
    predict: Callable[[Any, Any], Any] | None = None
    shape: Shape | None = None
    start: Path | str | Arrays | None = None

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model; the loss's slope over the outputs is not known, so the target stands in its place."""
        require_shape(self.shape, features)
        loss = _by_target(self, target, ops)

        def outputs(parameters: Tree, x: Array) -> Array:
            import jax
            import jax.numpy as jnp

            if self.predict is not None:
                return jnp.reshape(self.predict(parameters, x), (1,)).astype(jnp.float32)
            return -jax.vmap(lambda label: self.loss(parameters, x, label))(jnp.arange(target.bins))

        traced = Traced(what="the JAX model", init=self.init, outputs=outputs, loss=self.loss)
        return build_traced(self, traced, loss, features, target, ops)


def _by_target(model: JaxModel, target: Target, ops: Ops) -> Loss:
    if model.predict is None and not isinstance(target, Labels):
        raise BadInput(
            f"the target is {target.described}: which number is predicted does not follow from the loss",
            where="model",
            hint="give predict(parameters, x)",
        )

    def values(outputs: Array, targets: Array) -> Array:
        if model.predict is None:  # then outputs are the losses of all labels, with the sign turned
            return -ops.xp.take_along_axis(outputs, targets[None].astype(ops.xp.int32), axis=0)[0]
        raise BadInput(
            "the loss of this model does not follow from what it predicts",
            where="model",
            hint="leave predict out, or loss out of crowd.measure",
        )

    return handed_over(target, ops, values, scored=model.predict is None)


def slope_over_outputs(given: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """Return the gradient of a loss function with respect to outputs of shape (width, size): of each row by itself."""

    def slope(outputs: Array, targets: Array) -> Array:
        import jax
        import jax.numpy as jnp

        one = jax.grad(lambda z, y: jnp.sum(given(z[None], y[None])))
        found = jax.vmap(one, in_axes=(1, 0), out_axes=1)(jnp.asarray(outputs), jnp.asarray(targets))
        return np.asarray(found) if isinstance(outputs, np.ndarray) else found

    return slope


def module_loss(given: Any, target: Target, ops: Ops) -> Loss:
    """Make the loss over the outputs of a module."""
    return loss_of(given, target, ops, slope_over_outputs)


def build_traced(source: Any, traced: Traced, loss: Loss, features: int, target: Target, ops: Ops) -> Model:
    """Make a model of traced functions; what was tried before is not tried again.

    Args:
        source: The user's model, with its `shape` and `start`; it keeps what was compiled.
        traced: Its functions.
        loss: The loss over the outputs.
        features: Numbers in a row.
        target: What is predicted.
        ops: Array operations.
    """
    require_library("jax", install("simulation"))
    kept = source.__dict__.setdefault("_kept", {})
    key = (features, target)
    if key not in kept:
        kept[key] = _Functions(traced, source.shape or (features,), target)
        kept[key].require_fitting(loss)
    functions: _Functions = kept[key]
    made = model_of(functions.network(loss.width, ops), loss, features, source.shape, ops)
    return begun_at(made, source.start)


class _Functions:
    """Functions over arrays by name, made of functions over a tree."""

    def __init__(self, traced: Traced, shape: Shape, target: Target) -> None:
        import jax

        self.traced, self.shape, self.labels = traced, shape, isinstance(target, Labels)
        begun = called(f"{traced.what}: init", lambda: jax.eval_shape(traced.init, jax.random.key(0)))
        found, self.tree = jax.tree_util.tree_flatten_with_path(begun)
        self.names = [".".join(_entry(entry) for entry in path) or "parameters" for path, _ in found]
        self.layout: Layout = {
            name: tuple(leaf.shape) for name, (_, leaf) in sorted(zip(self.names, found, strict=True))
        }
        if len(self.layout) != len(found):
            raise BadInput(f"{traced.what} has two arrays of one name", where="model")
        self.begun = {name: leaf for name, (_, leaf) in zip(self.names, found, strict=True)}
        for name, leaf in self.begun.items():
            if np.dtype(leaf.dtype) != np.float32:
                raise BadInput(
                    f'{traced.what}: the array "{name}" holds {leaf.dtype} numbers',
                    where="model",
                    hint="float32 is what travels",
                )

    # Between arrays by name and the tree.

    def _tree(self, arrays: Tree) -> Tree:
        import jax

        return jax.tree_util.tree_unflatten(self.tree, [arrays[name] for name in self.names])

    def first(self, words: Array) -> Tree:
        """Return the first arrays from two words of coins."""
        import jax

        begun = self.traced.init(jax.random.wrap_key_data(words))
        return dict(zip(self.names, jax.tree_util.tree_leaves(begun), strict=True))

    # Gradients. Flat rows are columns here, as in every layer.

    def _rows(self, x: Array) -> Array:
        return x.T if len(self.shape) == 1 else x

    def scores(self, arrays: Tree, x: Array) -> Array:
        """Return outputs, shape (width, size)."""
        import jax

        return jax.vmap(lambda row: self.traced.outputs(self._tree(arrays), row), out_axes=1)(self._rows(x))

    def losses(self, arrays: Tree, rows: Array, targets: Array) -> Array:
        """Return losses of a model that knows them by itself."""
        import jax
        import jax.numpy as jnp

        assert self.traced.loss is not None  # noqa: S101  whoever asks knows
        targets = targets.astype(jnp.int32) if self.labels else targets
        return jax.vmap(functools.partial(self.traced.loss, self._tree(arrays)))(rows, targets)

    def total(self, arrays: Tree, x: Array, slope: Array, weights: Array) -> Tree:
        """Return the weighted sum of gradients."""
        import jax
        import jax.numpy as jnp

        if self.traced.loss is None:
            return jax.vjp(lambda at: self.scores(at, x), arrays)[1](slope * weights)[0]
        return jax.grad(lambda at: jnp.sum(weights * self.losses(at, self._rows(x), slope[0])))(arrays)

    def each(self, arrays: Tree, x: Array, slope: Array) -> Tree:
        """Return the gradient of each row."""
        import jax

        return jax.vmap(functools.partial(self._one, arrays))(self._rows(x), slope.T)

    def _one(self, arrays: Tree, row: Array, slope: Array) -> Tree:
        import jax

        if self.traced.loss is None:
            return jax.vjp(lambda at: self.traced.outputs(self._tree(at), row), arrays)[1](slope)[0]
        return jax.grad(lambda at: self.losses(at, row[None], slope)[0])(arrays)

    def norms(self, arrays: Tree, x: Array, slope: Array, order: int) -> Array:
        """Return the norm of each row's gradient in L1, or its square in L2; some rows at a time, within the cache."""
        import jax

        def one(given: tuple[Array, Array]) -> Array:
            return gradient_norm(self._one, order, arrays, *given)

        numbers = sum(math.prod(shape) for shape in self.layout.values())
        rows, at_once = self._rows(x), max(1, CACHE_NUMBERS // numbers)
        if len(rows) <= at_once:
            return jax.vmap(lambda row, slope: one((row, slope)))(rows, slope.T)
        return jax.lax.map(one, (rows, slope.T), batch_size=at_once)

    @functools.cached_property
    def compiled(self) -> dict[str, Any]:
        """The same, for arrays of NumPy."""
        import jax

        def over_numpy(function: Callable[..., Tree], fixed: str | None = None) -> Callable[..., Tree]:
            made = jax.jit(function, static_argnames=fixed)
            return lambda *given: jax.tree.map(np.asarray, made(*given))

        made = {name: over_numpy(getattr(self, name)) for name in ("first", "scores", "total", "each")}
        return made | {"norms": over_numpy(self.norms, "order")}

    def network(self, width: int, ops: Ops) -> Network:
        """Say what a layer needs to know."""
        of: Callable[[str], Any] = functools.partial(getattr, self) if ops.name == "jax" else self.compiled.__getitem__
        scores, first = of("scores"), of("first")

        def init(coins: Coins, stage: str) -> Tree:
            return first(ops.bits(coins.uniform(f"{stage}/key", (2,)), ops.xp.uint32))

        return Network(
            layout=self.layout,
            width=width,
            init=init,
            forward=lambda arrays, x: (scores(arrays, x), x),
            total=of("total"),
            each=of("each"),
            norms=of("norms"),
            by_row=True,
        )

    # Whether it fits.

    def require_fitting(self, loss: Loss) -> None:
        """Try init, outputs and loss on a few rows; refuse what does not fit."""
        import jax

        what, traced = self.traced.what, self.traced
        words = np.zeros(2, np.uint32)
        arrays = called(f"{what}: init", lambda: jax.jit(self.first)(words))
        require_arrays(what, arrays)
        rows = np.zeros((ROWS, *self.shape), np.float32)
        x, targets = (rows.T if len(self.shape) == 1 else rows), np.zeros(ROWS, loss.target.dtype)
        where = f"{what}, called with a row of shape {list(self.shape)},"
        if traced.loss is not None:
            found = called(where, lambda: jax.eval_shape(self.losses, arrays, rows, targets))
            require_per_row(f"the loss of {what}", found.shape, ROWS)
        outputs = called(where, lambda: jax.eval_shape(self.scores, arrays, x))
        require_outputs(what, outputs.shape[1:] + outputs.shape[:1] if outputs.ndim == 2 else outputs.shape, ROWS, loss)
        if traced.loss is None:
            found = called("the loss", lambda: np.shape(loss.values(np.zeros(outputs.shape, np.float32), targets)))
            require_per_row("the loss", found, ROWS)
            require_rows_apart(loss)
        self._require_finite(arrays, x, targets, loss)
        self._require_alone(arrays)

    def _require_finite(self, arrays: Tree, x: Array, targets: Array, loss: Loss) -> None:
        """Refuse gradients of empty rows that are not finite: with such rows a batch is filled up."""
        import jax

        def gradient() -> Tree:
            slope = np.asarray(loss.slope(np.asarray(jax.jit(self.scores)(arrays, x)), targets))
            return jax.jit(self.total)(arrays, x, slope, np.ones(ROWS, np.float32))

        found = called(f"the gradient of {self.traced.what}", gradient)
        require_finite_gradient(self.traced.what, found)

    def _require_alone(self, arrays: Tree) -> None:
        """Refuse a module whose outputs for a row depend on the rows beside it."""
        import jax

        whole = self.traced.whole
        if whole is None:
            return
        rows = jax.random.normal(jax.random.key(1), (ROWS, *self.shape))
        together = called(self.traced.what, lambda: whole(self._tree(arrays), rows))
        alone = self.scores(arrays, rows.T if len(self.shape) == 1 else rows).T
        if np.shape(together) != np.shape(alone) or not np.allclose(together, alone, rtol=1e-3, atol=1e-4):
            raise BadInput(
                f"{self.traced.what} gives a row other outputs when another row stands beside it",
                where="model",
                hint="a crowd's model maps every row by itself: use group or layer normalisation, and no dropout",
            )


def _entry(entry: Any) -> str:
    """Spell one step of a path into a tree."""
    for name in ("key", "name", "idx"):
        if hasattr(entry, name):
            return str(getattr(entry, name))
    return str(entry)
