"""What a model tells of the gradients of single examples, against those of automatic differentiation."""

from __future__ import annotations

from typing import Any

import numpy as np

from crowdml.core import Batch, Ops, trees
from crowdml.models import Model
from crowdml.simulation.engine.jax_ops import JAX

# isort: split
import jax

WEIGHTS = np.array([0.5, 0.0, -2.0, 1.0, 0.25], np.float32)
"""Of five examples."""


def close(found: Any, expected: Any) -> None:
    """Require numbers that differ by no more than rounding."""
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5 * scale)


def _told(model: Model, parameters: Any, batch: Batch, ops: Ops) -> dict[str, Any]:
    """Everything at once; where operations are JAX's, as one compiled program, which is what simulations run."""

    def told(parameters: Any) -> dict[str, Any]:
        # Once without norms before and once after: the weighted sum is then found in two ways.
        first, found = model.gradients(parameters, batch), model.gradients(parameters, batch)
        return {
            "total": first.total(WEIGHTS),
            "norms": found.norms(2, ops),
            "total after norms": found.total(WEIGHTS),
            "sums": found.norms(1, ops),
            "rows": found.rows(),
            "layer norms": [norm for norm in found.layer_norms(ops) if norm is not None],
        }

    told_at_once: dict[str, Any] = (jax.jit(told) if ops is JAX else told)(parameters)
    return told_at_once


def require_gradients(each: Any, model: Model, parameters: Any, batch: Batch, ops: Ops) -> None:
    """Require the gradients `each`, a row for every example, of a model: themselves, their norms and weighted sums."""
    found = _told(model, parameters, batch, ops)
    flat = np.concatenate([leaf.reshape(len(WEIGHTS), -1) for leaf in trees.leaves(each)], axis=1)
    assert flat.any()
    lengths = np.sqrt(np.square(flat).sum(axis=1))
    close(found["norms"], lengths)
    close(found["sums"], np.abs(flat).sum(axis=1))
    close(np.sqrt(sum(np.square(np.asarray(norm)) for norm in found["layer norms"])), lengths)
    for total in (found["total"], found["total after norms"]):
        assert [path for path, _ in trees.paths(total)] == [path for path, _ in trees.paths(parameters)]
        for leaf, expected in zip(trees.leaves(total), trees.leaves(each), strict=True):
            close(leaf, np.tensordot(WEIGHTS, expected, axes=1))
    for leaf, expected in zip(trees.leaves(found["rows"]), trees.leaves(each), strict=True):
        close(leaf, expected)
