"""Studies of other systems' tables: their settings are those systems', and verdicts can fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, trees
from crowdml.studies import STUDIES, Study
from crowdml.studies.external.dpsgd import PUBLISHED
from crowdml.task import Task, load

NIID, DPSGD = STUDIES["external/niid"], STUDIES["external/dpsgd"]


def task_of(study: Study, label: str) -> Task:
    curve = next(curve for curve in (*study.curves, *study.full_curves) if curve.label == label)
    return load(study.task, list(curve.changes))


def test_the_nets_have_as_many_numbers_as_theirs() -> None:
    sizes = {
        "niid": trees.size(task_of(NIID, "Fashion-MNIST, FedAvg, IID").model_for(NUMPY).zeros()),
        "opacus": trees.size(load(DPSGD.task, list(DPSGD.curves[0].changes)).model_for(NUMPY).zeros()),
        "keras": trees.size(load(DPSGD.task, list(DPSGD.curves[-1].changes)).model_for(NUMPY).zeros()),
    }
    lenet = (25 + 1) * 6 + (150 + 1) * 16 + (256 + 1) * 120 + 121 * 84 + 85 * 10
    small = (64 + 1) * 16 + (256 + 1) * 32 + (512 + 1) * 32 + 33 * 10
    assert sizes == {"niid": lenet, "opacus": small, "keras": small}


def test_a_cell_of_niid_is_fifty_rounds_of_ten_epochs() -> None:
    made = task_of(NIID, "MNIST, FedProx, Dirichlet 0.5")
    assert (made.algorithm.kind, made.algorithm.mu, made.data.dataset) == ("fedprox", 0.01, "mnist")
    assert made.passes * made.crowd.devices // (made.algorithm.per_round * made.algorithm.epochs) == 50
    assert made.algorithm.rate_memory == "reset" and made.crowd.partition.kind == "dirichlet"


@pytest.mark.parametrize("at", [0, 5])
def test_the_epsilon_is_that_of_dp_accounting(at: int) -> None:
    curve = DPSGD.curves[at]
    claim = load(DPSGD.task, list(curve.changes)).calibrated.terms.claim
    assert claim is not None and claim.epsilon == pytest.approx(PUBLISHED[curve.label][1], rel=0.02)


def fake(accuracy: float, epsilon: float = 0.0, dataset: str = "mnist") -> Any:
    task = SimpleNamespace(data=SimpleNamespace(dataset=dataset))
    privacy = {"sample": {"epsilon": epsilon}}
    return SimpleNamespace(measured={"test_error": np.array([[1 - accuracy]])}, privacy=privacy, task=task)


def test_verdicts_ask_for_the_published_level() -> None:
    label = "Fashion-MNIST, FedAvg, IID"
    for accuracy, verdict in ((0.885, "holds"), (0.91, "beyond"), (0.87, "trend"), (0.1, "differs")):
        (row,) = NIID.compare({label: fake(accuracy, dataset="fashion-mnist")})
        assert (row.verdict, row.paper) == (verdict, 0.89)
    label = DPSGD.curves[0].label
    rows = DPSGD.compare({label: fake(0.95, 0.84)})
    assert [row.verdict for row in rows] == ["holds", "holds"]
    assert [row.verdict for row in DPSGD.compare({label: fake(0.95, 0.9)})] == ["holds", "differs"]
