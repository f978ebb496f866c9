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
    assert claim is not None and claim.epsilon == pytest.approx(PUBLISHED[curve.label].epsilon, rel=0.02)


def fake(accuracy: float, epsilon: float = 0.0, dataset: str = "mnist") -> Any:
    task = SimpleNamespace(data=SimpleNamespace(dataset=dataset))
    privacy = {"sample": {"epsilon": epsilon}}
    return SimpleNamespace(measured={"test_error": np.array([[1 - accuracy]])}, privacy=privacy, task=task)


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [(0.8751, "holds"), (0.9049, "holds"), (0.906, "beyond"), (0.8749, "differs"), (0.1, "differs")],
)
def test_niid_holds_within_a_point_and_a_half(accuracy: float, verdict: str) -> None:
    (row,) = NIID.compare({"Fashion-MNIST, FedAvg, IID": fake(accuracy, dataset="fashion-mnist")})
    assert (row.verdict, row.paper) == (verdict, 0.89)


@pytest.mark.parametrize(
    ("at", "lowest", "beyond"),
    [
        (0, 0.9379, 0.9548),
        (1, 0.9607, 0.975),
        (2, 0.9642, 0.9777),
        (3, 0.961, 0.9711),
        (4, 0.968, 0.9781),
        (5, 0.945, 0.956),
    ],
)
def test_dpsgd_holds_down_to_the_published_spread_and_half_a_point(at: int, lowest: float, beyond: float) -> None:
    label = DPSGD.curves[at].label
    epsilon = PUBLISHED[label].epsilon

    def verdicts(accuracy: float, found: float = epsilon) -> list[str]:
        return [row.verdict for row in DPSGD.compare({label: fake(accuracy, found)})]

    below = "differs" if PUBLISHED[label].again is None else "trend"
    assert verdicts(lowest + 1e-6) == ["holds", "holds"] and verdicts(lowest - 1e-6) == [below, "holds"]
    assert verdicts(beyond) == ["beyond", "holds"]
    assert verdicts(lowest + 1e-6, 1.07 * epsilon) == ["holds", "differs"]


@pytest.mark.parametrize(("row", "above", "below"), [(3, 0.9508, 0.9506), (5, 0.9375, 0.9373)])
def test_a_row_below_its_table_is_a_trend_as_long_as_opacus_itself_is_no_better(
    row: int, above: float, below: float
) -> None:
    label = DPSGD.curves[row].label
    table = PUBLISHED[label]

    def verdict(accuracy: float) -> str:
        return DPSGD.compare({label: fake(accuracy, table.epsilon)})[0].verdict

    under = table.accuracy - table.tolerance - 1e-4
    assert (verdict(under), verdict(above), verdict(below)) == ("trend", "trend", "differs")


def test_opacus_ran_the_rows_that_were_below_their_table_in_one_trial() -> None:
    again = [name for name, table in PUBLISHED.items() if table.again is not None]
    assert again == [DPSGD.curves[3].label, DPSGD.curves[5].label]


def test_every_cell_of_niid_is_a_curve_or_says_that_it_was_not_run() -> None:
    said = [*(curve.label for curve in NIID.curves), *(row.setting for row in NIID.missing)]
    assert sorted(said) == sorted(curve.label for curve in NIID.full_curves) and len(said) == 8
    assert {row.paper for row in NIID.missing} == {0.895, 0.991, 0.989, 0.992, 0.99}


def test_niid_has_one_record_for_the_study_and_its_full_setting() -> None:
    assert NIID.shares_its_record and NIID.in_full.shares_its_record and not DPSGD.shares_its_record
    assert [name for name, study in STUDIES.items() if study.shares_its_record] == ["external/niid"]
