"""The learnt model: predictions for rows as owners have them, probabilities, ONNX, and rows that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdml.core import BadInput
from crowdml.data import load as load_dataset
from crowdml.simulation import Result, simulate
from crowdml.task import Task

Make = Callable[..., Task]


@pytest.fixture
def result(digits: Make) -> Result:
    return simulate(digits(), trials=2, engine="numpy")


def test_it_predicts_names_as_well_as_the_curve_says(result: Result) -> None:
    dataset = load_dataset("digits")
    predicted = result.model.predict(dataset.test_rows)
    assert predicted.dtype.kind == "U" and set(predicted) <= set("0123456789")
    wrong = np.mean(predicted != dataset.test_targets.astype(str))
    assert wrong == pytest.approx(result.measured["test_error"][-1, 0], abs=1e-6)
    chances = result.model.predict_proba(pd.DataFrame(dataset.test_rows))
    assert chances.shape == (len(predicted), 10) and chances.sum(axis=1) == pytest.approx(1.0)
    assert (chances.argmax(axis=1).astype(str) == predicted).all()
    second = result.model_of(trial=1).predict(dataset.test_rows)
    assert np.mean(second != dataset.test_targets.astype(str)) == pytest.approx(result.measured["test_error"][-1, 1])


def test_two_labels_have_probabilities_where_the_loss_has(digits: Make) -> None:
    from crowdml.core import NUMPY, Labels, Number
    from crowdml.models.losses import hinge, logistic, softmax
    from crowdml.simulation.reporting.learnt_model import _probabilities

    two, three = Labels(names=("no", "yes")), Labels(names=("a", "b", "c"))
    assert [_probabilities(loss(two, NUMPY)) for loss in (softmax, logistic, hinge)] == ["softmax", "logistic", ""]
    assert _probabilities(softmax(three, NUMPY)) == "softmax"
    from crowdml.models.losses import squared

    assert _probabilities(squared(Number(low=0.0, high=1.0), NUMPY)) == ""


def test_onnx_says_the_same(result: Result, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    result.model.save(path)
    session = onnxruntime.InferenceSession(str(path))
    rows = load_dataset("digits").test_rows[:50].astype(np.float32)
    (labels,) = session.run(["label"], {"rows": rows})
    assert labels.astype(str).tolist() == result.model.predict(rows).tolist()
    told = session.get_modelmeta().custom_metadata_map
    assert told["simulated"] == "true" and json.loads(told["privacy"])["mode"] == "none"


def test_safetensors_has_terms_and_cost(digits: Make, tmp_path: Path) -> None:
    import safetensors

    noise = "privacy={ mode = 'paper', mechanism = 'gaussian', clip = 0.5, epsilon = 2.0, delta = 1e-6 }"
    result = simulate(digits(noise, "crowd.passes=1"), engine="numpy")
    result.model.save(tmp_path / "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        told = file.metadata()
        assert np.array_equal(file.get_tensor("0/w"), result.parameters[0]["w"][0])
    assert json.loads(told["terms"])["epsilon"] == 2.0
    assert json.loads(told["privacy"])["sample"] == result.privacy["sample"]


def test_what_cannot_be_is_refused(result: Result, digits: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="rows differ in length"):
        result.model.predict([[1.0, 2.0], [1.0]])
    for rows in (np.zeros(64), np.zeros((2, 63)), np.array([["a"] * 64]), [[1.0]]):
        with pytest.raises(BadInput, match=r"numbers of shape \(any, 64\)"):
            result.model.predict(rows)
    with pytest.raises(BadInput, match=r"use \.safetensors or \.onnx"):
        result.model.save(tmp_path / "model.pkl")
    with pytest.raises(BadInput, match="there is no trial 2"):
        result.model_of(trial=2)
    with pytest.raises(BadInput, match="all devices have the same model"):
        result.model_of(device=1)
    alone = simulate(digits("algorithm={ kind = 'decentral' }", "crowd.passes=1"), engine="numpy")
    with pytest.raises(BadInput, match=r"model of its own.*\n.*model_of\(device=0\), up to 19"):
        alone.model  # noqa: B018
    assert len(alone.model_of(device=19).predict(np.zeros((3, 64)))) == 3


def test_columns_of_a_frame_are_found_by_name(digits: Make) -> None:
    names = [f"p{number}" for number in range(64)]
    result = simulate(digits(f"data.columns={names}"), engine="numpy")
    rows = load_dataset("digits").test_rows
    frame = pd.DataFrame(rows, columns=names)
    known = result.model.predict(rows)
    shuffled = frame[names[::-1]].assign(writer="ann")
    assert (result.model.predict(shuffled) == known).all()
    assert (result.model.predict(pd.DataFrame(rows)) == known).all(), "numbers without names go by position"
    with pytest.raises(BadInput, match="missing: p3"):
        result.model.predict(frame.drop(columns="p3"))


def test_a_row_with_a_gap_is_not_guessed(result: Result) -> None:
    rows = np.zeros((3, 64))
    rows[1, 5] = np.nan
    with pytest.raises(BadInput, match="rows, row 2, number 6 of the row: a value is missing"):
        result.model.predict(rows)
    rows[1, 5] = 1e300
    with pytest.raises(BadInput, match=r"row 2, number 6 of the row: 1e\+300 is not a finite number of 32 bits"):
        result.model.predict(rows)


def test_losses_by_label_are_no_probabilities() -> None:
    from crowdml.core import NUMPY
    from crowdml.models.adapters import JaxModel
    from crowdml.simulation.reporting.learnt_model import _probabilities
    from tests.support import user_models as same
    from tests.support.targets import some_labels

    for more in ({}, {"predict": None}):
        model = JaxModel(**same.jax_functions() | more).build(same.FEATURES, some_labels(same.CLASSES), NUMPY)
        assert _probabilities(model.loss) == ""
