"""fedprox: as fedavg, with the gradient of μ/2 ‖w - w₀‖² in every local step."""

from typing import Any

from crowdml.data import Dataset
from crowdml.simulation.timeline import Timeline
from crowdml.task import Task
from tests.parity.references import fedavg


def run(task: Task, dataset: Dataset, timeline: Timeline, seed: Any) -> Any:
    """Return the parameters after the last round."""
    mu = task.algorithm.mu
    return fedavg.run(task, dataset, timeline, seed, pull=lambda local, w: mu * (local - w))
