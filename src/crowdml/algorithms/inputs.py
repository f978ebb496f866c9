"""Input perturbation: noise on rows and labels themselves (Crowd-ML 2015, equations 15 and 16).

What a central server would have to receive if devices were to protect their rows instead of what they learnt from
them. The noise belongs to the row: it is drawn once, however often the row is used.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import Array, Coins, Ops
from crowdml.privacy import Inputs


def perturber(
    inputs: Inputs | None, classes: int, ops: Ops
) -> Callable[[Array, Array, Coins], tuple[Array, Array]] | None:
    """Return the function that perturbs rows and labels, or None where nothing is to be added."""
    if inputs is None:
        return None
    xp = ops.xp

    def perturb(rows: Array, labels: Array, coins: Coins) -> tuple[Array, Array]:
        noisy = rows + coins.laplace("rows", rows.shape[-1:]) * xp.float32(inputs.row_scale)
        u = coins.uniform("labels", ())
        # What is left of u, once the label is not kept, chooses among the others.
        step = xp.floor((u - inputs.keep) * ((classes - 1) / (1 - inputs.keep))).astype(xp.int32)
        other = (labels + 1 + xp.clip(step, 0, classes - 2)) % classes
        return noisy, xp.where(u < inputs.keep, labels, other).astype(xp.int32)

    return perturb
