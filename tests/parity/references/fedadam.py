"""fedadam and fedyogi, as in algorithm 2 of Reddi and others (2021): Δ is the mean change.

m ← β₁m + (1 - β₁)Δ;  v ← β₂v + (1 - β₂)Δ² (Adam), or v - (1 - β₂)Δ² sign(v - Δ²) (Yogi);  w ← w + ηm/(√v + τ)
"""

from typing import Any

import numpy as np

from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task
from tests.parity.references import fedavg


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    server, m, v = task.algorithm.server, [0.0], [0.0]
    assert not server.corrected
    b1, b2 = server.decay, server.square_decay

    def serve(w: Any, mean: Any) -> Any:
        change = mean - w
        m[0] = b1 * m[0] + (1 - b1) * change
        square = change**2
        if server.kind == "adam":
            v[0] = b2 * v[0] + (1 - b2) * square
        else:
            v[0] = v[0] - (1 - b2) * square * np.sign(v[0] - square)
        return w + server.c * m[0] / (np.sqrt(v[0]) + server.floor)

    return fedavg.run(task, dataset, timeline, seed, serve=serve)
