"""A training loop of the user's own as what a device does between check-out and check-in.

A loop takes parameters and gives trained ones back; nothing else is known of it. The difference is what the device
sends (a pseudo-gradient, as the field says): bounded as a whole, with noise. So a promise can be made to devices, of
all their rows together, and none to single rows: a loop may look at any row as often as it likes, and remember it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import BadInput, Coins, Labels, Number, Ops, Target, record
from crowdml.core.trees import Array, Tree
from crowdml.models.adapters.start_files import read_start
from crowdml.models.adapters.user_model import Arrays, Network, UserModel, called, handed_over, model_of
from crowdml.models.losses import Loss
from crowdml.models.model import Model

Weights = dict[str, npt.NDArray[np.float32]]


@record
class TrainingLoop(UserModel):
    """A training loop of your own: a function, the `NumPyClient` of a Flower app, or a loop over a PyTorch module.

        with crowdml.Device(home, model=crowdml.TrainingLoop.of_flower(client)) as device:
            device.run(crowdml.TrainingLoop.placeholder(device.live.task))

    A task for it says `kind = "own"` under `[model]`, an algorithm that sends what has changed, with a constant rate of
    1 (`fedavg`), and `unit = "device"` under `[privacy]`, or that nothing is promised.

    Attributes:
        weights: First weights: float32 arrays by name.
        train: `train(weights, rows, targets)`: returns trained weights under the same names. `rows` has a row for each
            example, after the task's transforms; `targets` are class numbers, or numbers from -1 to 1. What it raises
            ends the run before anything is sent.
        predict: `predict(weights, rows)`: a class number or a number for each row, for simulations, which measure.
    """

    weights: Arrays
    train: Callable[[Weights, npt.NDArray[Any], npt.NDArray[Any]], Mapping[str, Any]]
    predict: Callable[[Weights, npt.NDArray[Any]], Any] | None = None

    @staticmethod
    def of_flower(client: Any, config: Mapping[str, Any] | None = None) -> TrainingLoop:
        """Take a Flower `NumPyClient` as it is: `get_parameters` once, `fit` in every round. Flower is not needed here.

        It keeps its data to itself, so the device is run with `placeholder` rows. The number of examples and
        the metrics that `fit` returns are not sent.

        Args:
            client: An object with `get_parameters(config)` and `fit(parameters, config)`.
            config: Handed to both.
        """
        given = dict(config or {})
        first = called("get_parameters", lambda: list(client.get_parameters(dict(given))))
        names = [f"array-{number:03}" for number in range(len(first))]

        def train(weights: Weights, rows: Any, targets: Any) -> Mapping[str, Any]:
            found = client.fit([weights[name] for name in names], dict(given))
            arrays: Sequence[Any] = found[0]
            if len(arrays) != len(names):
                raise BadInput(f"fit returns {len(arrays)} arrays, and was given {len(names)}", where="model")
            return dict(zip(names, arrays, strict=True))

        return TrainingLoop(weights=dict(zip(names, map(np.asarray, first), strict=True)), train=train)

    @staticmethod
    def of_torch(module: Any, train: Callable[[Any, Any, Any], object]) -> TrainingLoop:
        """Take a PyTorch module and a loop `train(module, rows, targets)` that trains it in place.

        All floating-point entries of its `state_dict` travel, statistics of normalisation among them; what the loop
        keeps for itself, such as an optimiser, stays on the device.

        Args:
            module: The module; it is changed by training.
            train: The loop. Its rows are a float32 tensor, its targets int64 class numbers or float32 numbers.
        """
        import torch

        def floats() -> dict[str, Any]:
            state = module.state_dict()
            return {name: state[name].detach().cpu() for name in sorted(state) if state[name].is_floating_point()}

        def load(weights: Mapping[str, Any]) -> None:
            module.load_state_dict({name: torch.tensor(np.asarray(weights[name])) for name in weights}, strict=False)

        def run(weights: Weights, rows: npt.NDArray[Any], targets: npt.NDArray[Any]) -> Mapping[str, Any]:
            load(weights)
            train(module, torch.tensor(rows), torch.tensor(targets))
            return {name: tensor.numpy().copy() for name, tensor in floats().items()}

        def predict(weights: Weights, rows: npt.NDArray[Any]) -> Any:
            load(weights)
            was_training = module.training
            module.eval()
            with torch.no_grad():
                outputs = module(torch.tensor(rows)).cpu().numpy()
            module.train(was_training)
            return outputs[:, 0] if outputs.shape[1] == 1 else outputs.argmax(axis=1)

        return TrainingLoop(
            weights={name: tensor.numpy().copy() for name, tensor in floats().items()}, train=run, predict=predict
        )

    @staticmethod
    def placeholder(task: Any) -> tuple[npt.NDArray[Any], list[Any]]:
        """Return one row of zeros, for a device whose loop has rows of its own: so there is something to gather."""
        target = task.target
        return np.zeros((1, task.data.features), np.float32), [
            target.low if isinstance(target, Number) else target.names[0]
        ]

    def build(self, features: int, target: Target, ops: Ops) -> Model:
        """Make the model: its gradient is how far the loop goes, with the sign turned."""
        if ops.name != "numpy":
            raise BadInput("a training loop is not compiled", where="model", hint='leave engine out, or say "numpy"')
        begun = read_start(self.weights)
        layout = {name: tuple(array.shape) for name, array in begun.items()}
        labels = isinstance(target, Labels)

        def init(coins: Coins, stage: str) -> Tree:
            return {name: array.copy() for name, array in begun.items()}

        def forward(parameters: Tree, x: Array) -> tuple[Array, Any]:
            if self.predict is None:
                raise BadInput(
                    "this training loop says nothing of what it predicts", where="model", hint="give predict=…"
                )
            found = called("predict", lambda: self.predict(dict(parameters), np.array(x.T)))  # type: ignore[misc]
            return np.asarray(found, np.float32).reshape(1, -1), None

        def learn(parameters: Tree, x: Array, mask: Array) -> tuple[Array, Any]:
            return np.zeros((1, x.shape[-1]), np.float32), x

        def total(parameters: Tree, x: Array, slope: Array, weights: Array) -> Tree:
            real = np.flatnonzero(weights)
            if not len(real):
                return {name: np.zeros(shape, np.float32) for name, shape in layout.items()}
            targets = slope[0, real].astype(np.int64 if labels else np.float32)
            before = {name: np.array(parameters[name]) for name in layout}
            given = {name: array.copy() for name, array in before.items()}
            found = called("the training loop", lambda: self.train(given, np.array(x.T[real]), targets))
            return {name: before[name] - array for name, array in _checked(found, before).items()}

        def each(parameters: Tree, memory: Any, slope: Array) -> Tree:
            raise BadInput(
                "nothing is known of single rows in a training loop, so none can be bounded",
                where="privacy",
                hint='use "fedavg" and mode = "sound" without noise-at, which bounds the whole message',
            )

        network = Network(
            layout=layout,
            width=1,
            init=init,
            forward=forward,
            learn=learn,
            total=total,
            each=each,
            mixes=True,
            numpy_only=True,
        )
        return model_of(network, _by_target(target, ops), features, None, ops)


def _checked(found: Any, before: Weights) -> Weights:
    """Refuse trained weights that are not finite float32 arrays of the layout."""
    if not isinstance(found, Mapping) or set(found) != set(before):
        raise BadInput("the training loop returns other weights than it was given", where="model")
    made = {}
    for name, array in before.items():
        trained = np.asarray(found[name])
        if trained.shape != array.shape or trained.dtype.kind != "f":
            raise BadInput(
                f'the training loop: "{name}" is {trained.dtype} of shape {list(trained.shape)}, and was float32 of '
                f"shape {list(array.shape)}",
                where="model",
            )
        if not np.isfinite(trained).all():
            raise BadInput(f'the training loop: "{name}" is not finite after training', where="model")
        made[name] = trained.astype(np.float32)
    return made


def _by_target(target: Target, ops: Ops) -> Loss:
    """Make a loss that hands the target to the loop in place of a slope."""

    def values(outputs: Array, targets: Array) -> Array:
        raise BadInput("the loss of a training loop is not known", where="model")

    return handed_over(target, ops, values)
