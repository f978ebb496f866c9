"""fedavgm: v ← βv + (w - mean of models), w ← w - ηv."""

from typing import Any

from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task
from tests.parity.references import fedavg


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    server, velocity = task.algorithm.server, [0.0]

    def serve(w: Any, mean: Any) -> Any:
        velocity[0] = server.momentum * velocity[0] + (w - mean)
        return w - server.c * velocity[0]

    return fedavg.run(task, dataset, timeline, seed, serve=serve)
