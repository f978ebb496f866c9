"""What `epsilon_` says is what a device's ledger would say of the unit that is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.sklearn import CrowdClassifier

MOMENTUM = {"kind": "fedavg", "rate": {"kind": "momentum", "c": 0.1}}


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("algorithm", ["fedsgd", "scaffold", MOMENTUM], ids=["fedsgd", "scaffold", "momentum"])
def test_epsilon_is_what_a_ledger_adds_up(algorithm: Any, unit: str) -> None:
    rng = np.random.default_rng(0)
    rows, owners = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    model = CrowdClassifier(algorithm=algorithm, unit=unit, epsilon=4.0, passes=5, random_state=0)
    model.fit(rows, (rows[:, 0] > 0).astype(int), owners=owners)
    task = model.result_.task
    course = model.result_.course
    assert course is not None
    releases = int(course.releases[-1])
    spent = AcceptedTerms.of(task.calibrated).event.times(releases).promise(1e-5)
    assert releases == 5 and model.epsilon_ == pytest.approx(spent.epsilon, abs=2e-6)
    assert 3.9 < model.epsilon_ <= 4.0
    assert task.crowd.devices == 6, "every owner is a device, whose unit is all the owner's rows"
