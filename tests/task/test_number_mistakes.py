"""A task that predicts a number: each mistake has a sentence that names the key and what would be right."""

from __future__ import annotations

import pytest

from crowdml.core import BadInput
from crowdml.simulation import simulate
from crowdml.task import parse
from crowdml.task.explanation import explain

SOURCE = """
crowdml = 1
name = "warmth"
[data]
features = 10
dataset = "diabetes"
target = { name = "warmth", low = 10.0, high = 30.0, unit = "°C" }
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]
[model]
kind = "linear"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
[crowd]
passes = 1
"""
TARGET = 'target = { name = "warmth", low = 10.0, high = 30.0, unit = "°C" }'
MISTAKES = {
    "no bounds": (TARGET, 'target = { name = "warmth" }', "data.target", 'the key "low" is missing'),
    "one bound": (TARGET, 'target = { name = "warmth", low = 1.0 }', "data.target", 'the key "high" is missing'),
    "no name": (TARGET, "target = { low = 1.0, high = 2.0 }", "data.target", 'the key "name" is missing'),
    "high below low": ("low = 10.0", "low = 31.0", "data.target", "low = 31 is not below high = 30"),
    "nothing between": ("low = 10.0", "low = 30.0", "data.target", "nothing lies between them"),
    "too close": ("low = 10.0", "low = 29.99999", "data.target", "too close"),
    "text": ("low = 10.0", 'low = "cold"', "data.target.low", "number"),
    "infinite": ("low = 10.0", "low = -inf", "data.target.low", ""),
    "one bin": ("low = 10.0", "bins = 1, low = 10.0", "data.target.bins", "2"),
    "labels too": (TARGET, f'{TARGET}\nlabels = ["a", "b"]', "data", "labels or a number"),
    "neither": (TARGET, "", "data", "say what is predicted"),
    "predicted from itself": (
        "features = 10",
        'columns = ["warmth", "b", "c", "d", "e", "f", "g", "h", "i", "j"]',
        "data",
        "predicted from itself",
    ),
    "the id too": ("features = 10", 'features = 10\nid = "warmth"', "data", "cannot both be"),
    "softmax": ('kind = "linear"', 'kind = "softmax"', "model.kind", "the target of the task is a number"),
    "logistic": ('kind = "linear"', 'kind = "logistic"', "model.kind", "the target of the task is a number"),
    "svm": ('kind = "linear"', 'kind = "svm"', "model.kind", "the target of the task is a number"),
    "mlp of labels": ('kind = "linear"', 'kind = "mlp"', "model", "the target of the task is a number"),
    "an unbounded loss": (
        'mode = "none"',
        'mode = "sound"\nmechanism = "gaussian"\nepsilon = 1.0\ndelta = 1e-6\nmax-uses = 1',
        "privacy.clip",
        "",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_a_sentence(mistake: str) -> None:
    old, new, where, what = MISTAKES[mistake]
    assert SOURCE.count(old) == 1
    with pytest.raises(BadInput) as caught:
        parse(SOURCE.replace(old, new)).calibrated  # noqa: B018  what is wrong may be found only then
    assert where in caught.value.where and what in str(caught.value), str(caught.value)
    assert "Traceback" not in str(caught.value) and "pydantic" not in str(caught.value)


def test_noise_on_rows_knows_labels_only() -> None:
    changes = ["algorithm={ kind = 'central-sgd' }", "privacy.mode=paper", "privacy.epsilon=10.0"]
    with pytest.raises(BadInput, match="the paper perturbs labels, and the target of this task is a number"):
        simulate(parse(SOURCE, changes=changes), trials=1)


def test_a_linear_model_predicts_no_label_and_a_dataset_has_its_kind() -> None:
    with pytest.raises(BadInput, match="predicts a number, and the task has 2 labels"):
        parse(SOURCE.replace(TARGET, 'labels = ["a", "b"]')).model_for  # noqa: B018
    with pytest.raises(BadInput, match="progression, from 25 to 346") as caught:
        simulate(parse(SOURCE.replace(TARGET, 'labels = ["a", "b"]').replace('"linear"', '"softmax"')), trials=1)
    assert "give target" in caught.value.hint
    digits = SOURCE.replace("features = 10", "features = 64").replace("diabetes", "digits")
    with pytest.raises(BadInput) as caught:
        simulate(parse(digits), trials=1)
    assert "give labels, not a target" in caught.value.hint


def test_what_leaves_a_device_is_named_by_its_target() -> None:
    found = {part.name: part.what for part in explain(parse(SOURCE)).message_parts}
    assert found["counts/spread"] == "how the targets are spread: how many fall into each of 10 bins"
    assert "a coin called wrong" in found["counts/errors"]
    rows = explain(parse(SOURCE, changes=["algorithm={ kind = 'central-sgd' }"]))
    assert rows.message_parts[0].what == "the rows and targets themselves" and "rows and targets leave" in rows.promise
    labels = parse(SOURCE.replace(TARGET, 'labels = ["a", "b"]').replace('"linear"', '"softmax"'))
    found = {part.name: part.what for part in explain(labels).message_parts}
    assert found["counts/spread"] == "how often each label occurs"
    assert found["counts/errors"] == "how many of them the model got wrong"
