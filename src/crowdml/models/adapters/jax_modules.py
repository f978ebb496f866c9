"""Modules of flax (linen and nnx) and of equinox, as models of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crowdml.core import BadInput, Ops, Target, record
from crowdml.core.trees import Tree
from crowdml.models.adapters.jax_model import Traced, build_traced, module_loss
from crowdml.models.adapters.user_model import Arrays, UserModel, called, require_library, require_shape
from crowdml.models.layers import Shape
from crowdml.models.model import Model

GROUP = "use group or layer normalisation, which have nothing but parameters; and no dropout"


@record
class FlaxModel(UserModel):
    """A module of flax, which gives a row of outputs for each row of its batch.

        crowdml.simulate(task, model=crowdml.FlaxModel(module=MLP()))

    Attributes:
        module: A linen module; an nnx module, which begins with the weights it has; or a function `(rngs)` that makes
            an nnx module, so that every trial begins anew.
        loss: Name of a loss, or a function `(outputs, targets)` that returns one number for each row; not given:
            softmax for labels, squared for a number.
        shape: Shape of one example, such as (28, 28, 1); flat when not given.
        start: File of first weights.
    """

    module: Any
    loss: Any = None
    shape: Shape | None = None
    start: Path | str | Arrays | None = None

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model."""
        require_shape(self.shape, features)
        require_library("flax", "pip install flax")
        one = np.zeros((1, *(self.shape or (features,))), np.float32)
        from flax import linen

        if isinstance(self.module, type) and issubclass(self.module, linen.Module):
            raise BadInput(
                f"{self.module.__name__} is a class of flax modules", where="model", hint=f"{self.module.__name__}(…)"
            )
        traced = _linen(self.module, one) if isinstance(self.module, linen.Module) else _nnx(self.module)
        return build_traced(self, traced, module_loss(self.loss, target, ops), features, target, ops)


def _linen(module: Any, one: Any) -> Traced:
    what = f"the flax module {type(module).__name__}"

    def init(key: Any) -> Tree:
        variables = module.init(key, one)
        others = sorted(set(variables) - {"params"})
        if others:
            raise BadInput(
                f"{what} has {', '.join(others)} beside its parameters, which no gradient moves",
                where="model",
                hint=GROUP,
            )
        return variables.get("params", {})

    def whole(parameters: Tree, rows: Any) -> Any:
        return module.apply({"params": parameters}, rows)

    return Traced(what=what, init=init, outputs=_one_by_one(whole), whole=whole)


def _nnx(module: Any) -> Traced:
    from flax import nnx

    made, given = module, isinstance(module, nnx.Module)
    if not given:
        made = called("the function that makes a flax module", lambda: nnx.eval_shape(lambda: module(nnx.Rngs(0))))
    if not isinstance(made, nnx.Module):
        raise BadInput(f"{type(made).__name__} is no flax module", where="model")
    what = f"the flax module {type(made).__name__}"
    graph, *states = nnx.split(made, nnx.Param, ...)
    if kinds := sorted({type(leaf).__name__ for _, leaf in nnx.to_flat_state(states[-1])}):
        raise BadInput(
            f"{what} has {', '.join(kinds)} beside its parameters, which no gradient moves", where="model", hint=GROUP
        )

    def init(key: Any) -> Tree:
        begun = module if given else module(nnx.Rngs(key))
        return nnx.to_pure_dict(nnx.state(begun, nnx.Param))

    def whole(parameters: Tree, rows: Any) -> Any:
        state = nnx.state(made, nnx.Param)
        nnx.replace_by_pure_dict(state, parameters)
        return nnx.merge(graph, state)(rows)

    return Traced(what=what, init=init, outputs=_one_by_one(whole), whole=whole)


def _one_by_one(whole: Callable[[Tree, Any], Any]) -> Callable[[Tree, Any], Any]:
    """Hand a module that takes batches one row at a time."""
    return lambda parameters, row: whole(parameters, row[None])[0]


@record
class EquinoxModel(UserModel):
    """A module of equinox, which maps one row to its outputs.

        crowdml.simulate(task, model=crowdml.EquinoxModel(module=MLP(key)))

    Attributes:
        module: A module, which begins with the weights it has; or a function `(key)` that makes one, so that every
            trial begins anew.
        loss: Name of a loss, or a function `(outputs, targets)` that returns one number for each row; not given:
            softmax for labels, squared for a number.
        shape: Shape of one example; flat when not given.
        start: File of first weights.
    """

    module: Any
    loss: Any = None
    shape: Shape | None = None
    start: Path | str | Arrays | None = None

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model."""
        require_shape(self.shape, features)
        require_library("equinox", "pip install equinox")
        import equinox as eqx

        given = isinstance(self.module, eqx.Module)
        what = "the equinox module"
        made = self.module if given else called(what, lambda: eqx.filter_eval_shape(self.module, _key()))
        if not isinstance(made, eqx.Module):
            raise BadInput(f"{type(made).__name__} is no equinox module", where="model")
        what = f"the equinox module {type(made).__name__}"
        _, static = eqx.partition(made, _learnt)

        def init(key: Any) -> Tree:
            return eqx.filter(self.module if given else self.module(key), _learnt)

        def outputs(parameters: Tree, row: Any) -> Any:
            return eqx.combine(parameters, static)(row)

        traced = Traced(what=what, init=init, outputs=outputs)
        return build_traced(self, traced, module_loss(self.loss, target, ops), features, target, ops)


def _key() -> Any:
    import jax

    return jax.random.key(0)


def _learnt(leaf: Any) -> bool:
    """Tell whether a leaf is an array of floats, or the shape of one."""
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape") and np.issubdtype(leaf.dtype, np.floating)
