"""The first cut: what a dominator's followers see of its rows, and noise on it.

The sums of the first layer are the only numbers computed from a row itself that leave the dominator while it trains.
Weights of the first layer leave it too, at the next shuffle and with the upload, and their changes tell of rows. So
with noise on the first cut the layers before it stay at their public first values: then a row enters one release, its
bounded sums with noise that is drawn once and kept, and everything after that is post-processing. Slopes tell labels:
these are open, unless they are answered at random as well. Live the same is done on the grid, with the noise of
`privacy.sanitisers.first_sums`; a simulation in sound mode draws as a device does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crowdml.core import Array, BadInput, Batch, record
from crowdml.core.ops import Tree
from crowdml.models import Model
from crowdml.privacy.noise.samplers import Words
from crowdml.privacy.sanitisers.first_sums import FirstCut
from crowdml.slicing.cost_graph import CostGraph
from crowdml.slicing.sharing import Floats
from crowdml.slicing.sliced_net import as_columns, before_first_sum
from crowdml.slicing.stages import Indices
from crowdml.slicing.training import as_batch


def first_sums(model: Model, graph: CostGraph, parameters: Tree, batch: Batch) -> Array:
    """Return the sums that cross the first cut, in the shape the first stage has."""
    linear = graph.hidden[0].linear
    x = before_first_sum(model, graph, parameters, batch, {})
    return model.layers[linear].forward(parameters[linear], x)[0]


def require_separate_rows(model: Model, graph: CostGraph) -> None:
    """Refuse a net in which one row changes the first sums of others."""
    if any(model.layers[number].mixes for number in graph.before):
        raise BadInput(
            "a normalisation over the batch comes before the first cut: one row would change the sums of others",
            where="algorithm.cut-noise",
            hint="take the batch-norm away that comes first",
        )


@record
class CutNoise:
    """Bound and noise on the sums of one row.

    Guarantee: replacing a row changes its bounded sums by at most 2 · clip in L2, and Gaussian noise of standard
    deviation noise · clip is added once. So all that followers and server ever see of a row, its label apart, is one
    Gaussian release with μ = 2 / noise.

    Attributes:
        clip: Largest L2 norm of the sums of one row.
        noise: Standard deviation of the noise on each sum, as a multiple of `clip`.
    """

    clip: float
    noise: float

    @property
    def mu(self) -> float:
        """Strength of the release: sensitivity over standard deviation."""
        return 2.0 / self.noise

    def released(
        self, model: Model, graph: CostGraph, first: Tree, rows: Floats, generator: np.random.Generator
    ) -> Floats:
        """Return what is sent of each row, one column per row: bounded sums with noise."""
        require_separate_rows(model, graph)
        sums = as_columns(first_sums(model, graph, first, as_batch(rows, np.zeros(len(rows), np.int64))))
        norms = np.sqrt(np.sum(sums * sums, axis=0))
        bounded = sums * np.minimum(1.0, self.clip / np.maximum(norms, 1e-12))
        drawn = generator.standard_normal(bounded.shape) * (self.noise * self.clip)
        sent: Floats = (bounded + drawn).astype(np.float32)
        return sent


@record
class Released:
    """What dominators send instead of their sums, drawn once for every row.

    Attributes:
        columns: For every device, one column per row.
        frozen: Numbers of the layers that stay as they are.
        shape: Shape of one example's sums.
        labels: For every device what stands for its labels; None where they are open.
    """

    columns: Sequence[Floats]
    frozen: tuple[int, ...]
    shape: tuple[int, ...]
    labels: Sequence[Indices] | None = None

    def of(self, device: int, numbers: Indices) -> Array:
        """Return what crosses the cut for some rows of a device."""
        sums = self.columns[device][:, numbers]
        return sums if len(self.shape) == 1 else sums.T.reshape(-1, *self.shape)


def release_on_grid(
    cut: FirstCut, model: Model, graph: CostGraph, first: Tree, rows: Sequence[tuple[Floats, Indices]], words: Words
) -> Released:
    """Draw what every device releases of its rows as a live one does, from the words of a simulation."""
    require_separate_rows(model, graph)
    columns, labels = [], []
    for examples, given in rows:
        sums = as_columns(first_sums(model, graph, first, as_batch(examples, given)))
        columns.append(cut.columns(sums.T, words))
        labels.append(cut.answers(given, words))
    frozen = (*graph.before, graph.hidden[0].linear)
    return Released(columns=columns, frozen=frozen, shape=graph.hidden[0].sums, labels=labels)


def release(
    noise: CutNoise, model: Model, graph: CostGraph, first: Tree, rows: Sequence[Floats], generator: np.random.Generator
) -> Released:
    """Draw what every device releases of its rows."""
    return Released(
        columns=[noise.released(model, graph, first, of_device, generator) for of_device in rows],
        frozen=(*graph.before, graph.hidden[0].linear),
        shape=graph.hidden[0].sums,
    )
