"""The study of private learning: its tasks are whole, their ε is the promised one, and verdicts ask for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY
from crowdml.studies.odpfl.fixed_features import FIXED_FEATURES, WANTED
from crowdml.studies.odpfl.private import PRIVATE
from crowdml.task import load


@pytest.mark.parametrize("label", ["CIFAR-10, net, ε = 8", "MNIST, net, ε = 3"])
def test_nets_train_all_layers(label: str) -> None:
    curve = next(curve for curve in PRIVATE.curves if curve.label == label)
    # ε is left out here, as working noise out takes seconds: one step has the same shapes.
    task = load(PRIVATE.task, [*curve.changes, "privacy={ mode = 'none' }", "algorithm={ kind = 'fedsgd' }"])
    model = task.model_for(NUMPY)
    learning = [layer for layer in model.layers if layer.factors]
    assert len([layer for layer in learning if len(layer.shape) == 3]) >= 2 and not model.mixes


def fake(accuracy: float, epsilon: float, claim: float) -> Any:
    privacy = {"sample": {"epsilon": epsilon}, "paper_claim": {"epsilon": claim}}
    task = SimpleNamespace(data=SimpleNamespace(dataset="mnist"))
    return SimpleNamespace(measured={"test_error": np.array([[1 - accuracy]])}, privacy=privacy, task=task)


def test_verdicts_ask_for_accuracy_and_for_the_promise() -> None:
    features, net = "CIFAR-10, fixed features, ε = 8", "MNIST, net, ε = 3"
    rows = PRIVATE.compare({features: fake(0.61, 7.99, 8.0), net: fake(0.976, 2.99, 3.0)})
    assert [row.verdict for row in rows] == ["beyond", "holds"] and rows[0].paper == 0.30
    rows = PRIVATE.compare({features: fake(0.61, 8.2, 8.0), net: fake(0.97, 2.99, 3.0)})
    assert [row.verdict for row in rows] == ["differs", "differs"]


def test_fixed_features_ask_for_what_was_wanted_and_for_the_promise() -> None:
    digits, photographs = WANTED
    for accuracy, epsilon, word in ((0.985, 2.99, "holds"), (0.975, 2.99, "differs"), (0.985, 3.1, "differs")):
        row = FIXED_FEATURES.compare({digits: fake(accuracy, epsilon, 3.0)})[0]
        assert (row.setting, row.verdict) == (digits, word)
    assert FIXED_FEATURES.by_curve.not_run(photographs, "…").verdict == "not run"
