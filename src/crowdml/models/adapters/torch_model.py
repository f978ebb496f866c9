"""Modules of PyTorch, as models of the user's own. They run in NumPy's loop and on devices; nothing is compiled.

Sums of gradients are taken of a whole batch. Gradients of single rows come from batches of one (`torch.func`), and the
outputs that they belong to are compared with those of the whole batch: a module that mixes rows is refused there and
then. Batch normalisation mixes them by intention. It learns where nothing bounds single rows: its running statistics
are parameters that move towards those of the batch, as they do in `models.layers.normalisation`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crowdml.core import BadInput, Coins, Labels, Ops, Target, record
from crowdml.core.errors import install
from crowdml.core.trees import Array, Tree
from crowdml.models.adapters.start_files import Layout, begun_at
from crowdml.models.adapters.user_model import (
    ROWS,
    Arrays,
    Network,
    UserModel,
    called,
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

NEAR = 1e-3
"""How far outputs of a row alone may be from those in a batch, relative to the largest: sums have another order."""


@record
class TorchModel(UserModel):
    """A module of PyTorch, which gives a row of outputs for each row of its batch.

        crowdml.simulate(task, model=crowdml.TorchModel(module=MLP))

    Attributes:
        module: A module, which begins with the weights it has; or a class or function without arguments that makes one,
            so that every trial begins anew.
        loss: Name of a loss, or a function `(outputs, targets)` that returns one number for each row, such as
            `functools.partial(cross_entropy, reduction="none")`; not given: softmax for labels, squared for a number.
        shape: Shape of one example, such as (1, 28, 28); flat when not given.
        start: File of first weights.
    """

    module: Any
    loss: Any = None
    shape: Shape | None = None
    start: Path | str | Arrays | None = None

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model."""
        require_shape(self.shape, features)
        require_library("torch", install("torch"))
        if ops.name != "numpy":
            raise BadInput(
                "a PyTorch module is not compiled", where="model", hint='leave engine out, or say engine = "numpy"'
            )
        loss = loss_of(_over_numpy(self.loss, target), target, ops, lambda _: _slope_over_outputs(self.loss, target))
        kept = self.__dict__.setdefault("_kept", {})
        if (features, target) not in kept:
            functions = _Functions(self.module, self.shape or (features,))
            functions.require_fitting(loss)
            kept[features, target] = functions
        made = model_of(kept[features, target].network(loss.width), loss, features, self.shape, ops)
        return begun_at(made, self.start)


def _over_numpy(loss: Any, target: Target) -> Any:
    """Let a function of PyTorch take and give arrays of NumPy; names are left as they are."""
    if not callable(loss):
        return loss
    return lambda outputs, targets: loss(_tensor(outputs), _targets(targets, target)).detach().numpy()


def _slope_over_outputs(loss: Any, target: Target) -> Callable[[Array, Array], Array]:
    def slope(outputs: Array, targets: Array) -> Array:
        from torch.func import grad, vmap

        # Each row by itself: nothing of a row is in the slope of another, whatever the loss does with a batch.
        one = vmap(grad(lambda z, y: loss(z[None], y[None]).sum()))
        found = called("the loss, one row at a time,", lambda: one(_tensor(outputs.T), _targets(targets, target)))
        return np.asarray(found.numpy().T)

    return slope


def _tensor(array: Array) -> Any:
    import torch

    # What comes from a file or from shared memory cannot be written, which PyTorch would warn of.
    made = np.ascontiguousarray(array, np.float32)
    return torch.from_numpy(made if made.flags.writeable else made.copy())


def _targets(targets: Array, target: Target) -> Any:
    import torch

    return torch.from_numpy(np.asarray(targets, np.int64 if isinstance(target, Labels) else np.float32))


class _Memory(NamedTuple):
    """What a batch leaves for its gradients: rows, parameters, outputs with their graph, and statistics seen."""

    rows: Any
    given: dict[str, Any]
    outputs: Any
    seen: dict[str, Any]


class _Functions:
    """A module's functions over arrays by name."""

    def __init__(self, module: Any, shape: Shape) -> None:
        import torch

        self.shape = shape
        self.make = None if isinstance(module, torch.nn.Module) else module
        # A copy: what is somebody else's is left as it is.
        made = called("the PyTorch module", module) if self.make else copy.deepcopy(module)
        if not isinstance(made, torch.nn.Module):
            raise BadInput(f"{type(made).__name__} is no PyTorch module", where="model")
        self.module, self.what = made, f"the PyTorch module {type(made).__name__}"
        self._require_known_layers()
        self.module.eval()
        self.statistics = sorted(
            f"{name}.{of}" if name else of
            for name, layer in made.named_modules()
            if _is_batch_norm(layer) and layer.running_mean is not None
            for of in ("running_mean", "running_var")
        )
        self.arrays = called(self.what, lambda: self._arrays(made))
        require_arrays(self.what, self.arrays)
        self.layout: Layout = {name: array.shape for name, array in self.arrays.items()}
        self.learnt = [name for name in self.layout if name not in self.statistics]
        # Beside rows of the owner's, whose largest outputs hide small differences, rows are tried that everybody knows.
        self.rows_apart = False
        # Arrays that two layers share have to be found again at every call.
        self.tied = len(list(made.named_parameters(remove_duplicate=False))) > len(list(made.named_parameters()))

    def _require_known_layers(self) -> None:

        for name, layer in self.module.named_modules():
            if _drops(layer) > 0:
                raise BadInput(
                    f'{self.what}: "{name}" is dropout, whose chance would not come from the device\'s coins',
                    where="model",
                    hint="leave it out, or p=0",
                )
            if _is_batch_norm(layer) and not layer.momentum:
                raise BadInput(
                    f'{self.what}: "{name}" has momentum={layer.momentum}, by which its statistics cannot move',
                    where="model",
                    hint="a momentum above zero, such as 0.1",
                )
            if _is_batch_norm(layer) and layer.running_mean is None:
                raise BadInput(
                    f'{self.what}: "{name}" normalises over a batch and has no running statistics for single rows',
                    where="model",
                    hint="track_running_stats=True, or group normalisation",
                )

    def _arrays(self, module: Any) -> dict[str, Any]:
        """Return parameters, and statistics of batch normalisation, by name, sorted."""
        found = dict(module.named_parameters())
        for name, tensor in module.named_buffers():
            if name in self.statistics:
                found[name] = tensor
        return {name: found[name].detach().numpy().copy() for name in sorted(found)}

    # Functions of a network.

    def init(self, coins: Coins, stage: str) -> Tree:
        """Draw the first arrays: those of the module, or of one that is made anew from the coins."""
        if self.make is None:
            return {name: array.copy() for name, array in self.arrays.items()}
        import torch

        words = coins.uniform(f"{stage}/key", (2,)).view(np.uint32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(words[0]) << 32 | int(words[1]))
            return self._arrays(self.make())

    def forward(self, arrays: Tree, x: Array) -> tuple[Array, _Memory]:
        """Return outputs of rows that do not depend on each other."""
        return self._run(arrays, self._rows(x), learns=False)

    def learn(self, arrays: Tree, x: Array, mask: Array) -> tuple[Array, _Memory]:
        """Return outputs as batch normalisation learns them: over the rows that are no padding."""
        real = np.flatnonzero(mask)
        if len(real) < ROWS:  # nothing to normalise by
            return self.forward(arrays, x)
        found, memory = self._run(arrays, self._rows(x)[real], learns=True)
        outputs = np.zeros((len(found), len(mask)), np.float32)
        outputs[:, real] = found
        return outputs, memory._replace(rows=real)

    def _rows(self, x: Array) -> Array:
        return x.T if len(self.shape) == 1 else x

    def _run(self, arrays: Tree, rows: Array, learns: bool) -> tuple[Array, _Memory]:
        from torch.func import functional_call

        given = {name: _tensor(arrays[name]) for name in self.layout}
        for name in self.learnt:
            given[name].requires_grad_()
        seen = {name: given[name].clone() for name in self.statistics} if learns else {}
        self.module.train(learns)
        rows = _tensor(rows)
        outputs = functional_call(self.module, given | seen, (rows,), tie_weights=self.tied)
        return outputs.detach().numpy().T, _Memory(rows=rows, given=given, outputs=outputs, seen=seen)

    def total(self, arrays: Tree, memory: _Memory, slope: Array, weights: Array) -> Tree:
        """Return the weighted sum of gradients, and how far statistics are from those of the batch."""
        import torch

        weighted = slope * weights
        if memory.seen:
            weighted = weighted[:, memory.rows]
        asked = [memory.given[name] for name in self.learnt]
        found = torch.autograd.grad(
            memory.outputs, asked, _tensor(weighted.T), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        made = {name: gradient.numpy() for name, gradient in zip(self.learnt, found, strict=True)}
        for name in self.statistics:
            before = memory.given[name]
            moved = (before - memory.seen[name]) / self._pace(name) if memory.seen else torch.zeros_like(before)
            made[name] = moved.numpy()
        return {name: made[name] for name in self.layout}

    def _pace(self, name: str) -> float:
        """Return by how much the module moves its statistics itself: here the learning rate decides."""
        layer = self.module.get_submodule(name.rpartition(".")[0])
        return float(layer.momentum)

    def each(self, arrays: Tree, memory: _Memory, slope: Array) -> Tree:
        """Return the gradient of each row, from batches of one."""
        import torch
        from torch.func import functional_call, grad, vmap

        if memory.seen:
            raise BadInput("batch normalisation mixes the rows of a batch", where="model", hint="group normalisation")
        given = {name: tensor.detach() for name, tensor in memory.given.items()}

        def pulled(at: Any, row: Any, slope: Any) -> Any:
            outputs = functional_call(self.module, at, (row[None],))[0]
            return (outputs * slope).sum(), outputs

        one = vmap(grad(pulled, has_aux=True), in_dims=(None, 0, 0))
        found, alone = called(f"{self.what}, one row at a time,", lambda: one(given, memory.rows, _tensor(slope.T)))
        together = memory.outputs.detach()
        # Of numbers that are none, whose rows count as zero, nothing can be told.
        finite = torch.isfinite(alone).all(dim=1) & torch.isfinite(together).all(dim=1)
        self._require_near(alone[finite], together[finite])
        if not self.rows_apart:
            numbers = torch.arange(1.0, ROWS * memory.rows[0].numel() + 1)
            tried = torch.sin(numbers * numbers).reshape(ROWS, *memory.rows.shape[1:])
            _, alone = one(given, tried, torch.zeros(ROWS, together.shape[1]))
            self._require_near(alone, functional_call(self.module, given, (tried,), tie_weights=self.tied))
            self.rows_apart = True
        return {name: found[name].numpy() for name in self.layout}

    def _require_near(self, alone: Any, together: Any) -> None:
        """Refuse outputs of rows that depend on other rows."""
        import torch

        largest = float(together.abs().max()) if together.numel() else 0.0
        if not torch.isclose(alone, together, rtol=NEAR, atol=NEAR * largest).all():
            raise BadInput(
                f"{self.what} gives a row other outputs when other rows stand beside it, so a bound on its gradient "
                "protects nobody",
                where="model",
                hint="group or layer normalisation look at one row",
            )

    def network(self, width: int) -> Network:
        """Say what a layer needs to know."""
        mixes = bool(self.statistics)
        return Network(
            layout=self.layout,
            width=width,
            init=self.init,
            forward=self.forward,
            total=self.total,
            each=self.each,
            learn=self.learn if mixes else None,
            mixes=mixes,
            numpy_only=True,
        )

    def require_fitting(self, loss: Loss) -> None:
        """Try outputs, loss and gradient on a few rows; refuse what does not fit."""
        rows = np.zeros((ROWS, *self.shape), np.float32)
        x = rows.T if len(self.shape) == 1 else rows
        where = f"{self.what}, called with rows of shape {list(rows.shape)},"
        outputs, memory = called(where, lambda: self.forward(self.arrays, x))
        require_outputs(self.what, tuple(memory.outputs.shape), ROWS, loss)
        targets = np.zeros(ROWS, loss.target.dtype)
        require_per_row("the loss", np.shape(called("the loss", lambda: loss.values(outputs, targets))), ROWS)
        called("the loss", lambda: require_rows_apart(loss))
        slope = called("the gradient of the loss", lambda: loss.slope(outputs, targets))
        found = called(
            f"the gradient of {self.what}",
            functools.partial(self.total, self.arrays, memory, slope, np.ones(ROWS, np.float32)),
        )
        require_finite_gradient(self.what, found)


def _drops(layer: Any) -> float:
    """Return the share of numbers that a layer would drop while it learns."""
    from torch import nn

    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return float(layer.p)
    return float(layer.dropout) if isinstance(layer, nn.RNNBase | nn.MultiheadAttention) else 0.0


def _is_batch_norm(layer: Any) -> bool:
    from torch import nn

    return isinstance(layer, nn.modules.batchnorm._BatchNorm)
