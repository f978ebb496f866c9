"""A model as one vector: for a server, which adds parameters up and never looks inside.

Kernels of the server are written over trees; over a tree that is a single vector they cost a fraction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crowdml.core import Array, Coins, record, trees
from crowdml.core.ops import Tree
from crowdml.models.losses import Loss
from crowdml.models.model import Model


@record
class FlatModel:
    """Has what the server's half of an algorithm asks of a model, over NumPy.

    Attributes:
        model: The model itself.
        decays: 1 for every number that a regulariser acts on, otherwise 0.
    """

    model: Model
    decays: npt.NDArray[np.float32]

    @staticmethod
    def of(model: Model) -> FlatModel:
        """Wrap a model."""
        ones = trees.map(np.ones_like, model.zeros())
        return FlatModel(model=model, decays=flatten(model.regulariser(ones, 1.0)))

    @property
    def loss(self) -> Loss:
        """The model's loss."""
        return self.model.loss

    def init(self, coins: Coins) -> Array:
        """Draw the first parameters."""
        return flatten(self.model.init(coins))

    def zeros(self) -> Array:
        """Return a vector of the right length, all zero."""
        return flatten(self.model.zeros())

    def regulariser(self, parameters: Array, strength: float) -> Array:
        """Return the gradient of ½ strength ‖w‖²."""
        return parameters * (self.decays * np.float32(strength))

    def unflatten(self, vector: Array) -> Tree:
        """Cut a vector into the model's parameters."""
        return unflatten(vector, self.model.zeros())


def flatten(tree: Tree) -> npt.NDArray[Any]:
    """Make one vector of a tree's leaves, in their order.

    >>> flatten({"b": np.ones(2), "a": np.zeros((1, 2))}).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in trees.leaves(tree)])


def unflatten(vector: npt.NDArray[Any], like: Tree) -> Tree:
    """Cut a vector into the shapes of a tree."""
    leaves = trees.leaves(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = (vector[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends.tolist(), strict=True))
    return trees.fill(like, iter(parts))
