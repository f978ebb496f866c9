"""Kinds of model: shapes that fit, and refusals of those that do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, Batch, Number, trees
from crowdml.models import MODELS, Model
from crowdml.models.layers import LAYERS
from crowdml.simulation.engine.hash_coins import HashCoins
from tests.support.targets import some_labels


def build(features: int = 6, classes: int = 3, **given: Any) -> Model:
    made = MODELS[given["kind"]].model_validate(given).build(features, some_labels(classes), NUMPY)
    return made


@pytest.mark.parametrize("kind", ["logistic", "svm"])
@pytest.mark.parametrize("classes", [3, 10])
def test_two_class_models_refuse_another_number_of_labels(kind: str, classes: int) -> None:
    with pytest.raises(BadInput) as caught:
        build(kind=kind, classes=classes)
    assert caught.value.what == f"this model separates two labels, the task has {classes}"
    assert caught.value.where == "model.kind"
    assert 'kind = "softmax"' in caught.value.hint
    assert build(kind=kind, classes=2).loss.width == 1


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_declared_layers_refuse_a_two_class_loss_for_three_labels(loss: str) -> None:
    with pytest.raises(BadInput, match="separates two labels"):
        build(kind="layers", loss=loss, layers=[{"kind": "dense", "size": 1}])


def test_linear_models_start_at_zero_and_ask_for_no_coins() -> None:
    class NoCoins:
        """Fails when asked."""

    for kind in ("softmax", "logistic", "svm"):
        parameters = build(kind=kind, classes=2).init(NoCoins())  # type: ignore[arg-type]
        assert all(not leaf.any() for leaf in parameters[0].values())


def test_shapes_of_a_perceptron() -> None:
    model = build(kind="mlp", layers=[5, 4])
    assert [layer.shape for layer in model.layers] == [(5,), (5,), (4,), (4,), (3,)]


def test_the_last_layer_must_fit_the_loss() -> None:
    with pytest.raises(BadInput, match=r"the last layer gives \(4,\), the loss needs \(3,\)"):
        build(kind="layers", layers=[{"kind": "dense", "size": 4}])


def test_a_dense_layer_needs_flat_examples() -> None:
    with pytest.raises(BadInput) as caught:
        build(kind="layers", shape=[2, 3], layers=[{"kind": "dense", "size": 3}])
    assert caught.value.hint == "put a flatten layer before it"


def test_no_layers_at_all() -> None:
    with pytest.raises(BadInput) as caught:
        build(kind="layers", layers=[])
    assert caught.value.where == "model.layers"


@pytest.mark.parametrize("shape", [[2, 2], [3, 3], [7]])
def test_a_shape_must_hold_exactly_the_features_of_a_row(shape: list[int]) -> None:
    with pytest.raises(BadInput):
        build(kind="layers", shape=shape, layers=[{"kind": "flatten"}, {"kind": "dense", "size": 3}])


def test_a_model_must_have_something_to_learn() -> None:
    with pytest.raises(BadInput):
        build(kind="layers", features=3, layers=[{"kind": "tanh"}])


def test_every_kind_and_layer_is_named_as_it_is_registered_and_described() -> None:
    for registry in (MODELS, LAYERS):
        for name, settings in registry.items():
            fields = settings.model_fields
            assert fields["kind"].default == name
            assert settings.__doc__
            undescribed = [key for key, field in fields.items() if key != "kind" and not field.description]
            assert not undescribed, f"{name}: {undescribed}"


NUMBER = Number(low=20.0, high=40.0, name="age")


def regressor(**given: Any) -> Model:
    return MODELS[given["kind"]].model_validate(given).build(6, NUMBER, NUMPY)


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"kind": "linear"}, None),
        ({"kind": "linear", "loss": "huber", "bias": False}, 3.0),
        ({"kind": "linear", "loss": "huber", "delta": 0.5, "bias": False}, 1.5),
        ({"kind": "linear", "loss": "huber"}, math.hypot(3, 1)),
        ({"kind": "mlp", "layers": [4], "top": "squared"}, None),
        ({"kind": "mlp", "layers": [4], "top": "huber"}, None),
        ({"kind": "layers", "layers": [{"kind": "dense", "size": 1}], "loss": "squared"}, None),
    ],
)
def test_models_of_a_number_have_one_output_and_a_bound_where_one_is_proven(
    given: dict[str, Any], bound: float | None
) -> None:
    model = regressor(**given)
    assert model.loss.width == 1 and model.loss.target is NUMBER
    assert model.gradient_bound(2, 3.0) == (None if bound is None else pytest.approx(bound))
    rows = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    parameters = trees.map(lambda leaf: leaf + 0.1, model.zeros())
    predicted = model.predict(parameters, rows)
    assert predicted.shape == (5,) and predicted.dtype == np.float32 and np.abs(predicted).max() <= 1


def test_no_gradient_of_huber_regression_is_longer_than_its_bound() -> None:
    model, random = regressor(kind="linear", loss="huber", delta=0.5), np.random.default_rng(0)
    rows = random.normal(size=(200, 6)).astype(np.float32)
    rows *= 3 / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 3)
    batch = Batch(rows=rows, targets=random.uniform(-1, 1, 200).astype(np.float32), mask=np.ones(200, np.float32))
    for scale in (0.0, 1.0, 1e10):
        parameters = trees.map(lambda leaf, by=scale: leaf + np.float32(by), model.zeros())
        for order in (1, 2):
            length = math.sqrt(6) * 3 if order == 1 else 3.0
            bound = model.gradient_bound(order, length)
            norms = model.gradients(parameters, batch).norms(order, NUMPY)
            assert bound is not None and norms.max() <= bound * (1 + 1e-6)
            assert norms.max() > (0.4 if scale else 0.1) * bound  # the bound is not an idle one


@pytest.mark.parametrize("kind", ["softmax", "logistic", "svm", "cnn", "mlp"])
def test_models_of_labels_refuse_a_number(kind: str) -> None:
    with pytest.raises(BadInput, match="the target of the task is a number") as caught:
        regressor(kind=kind)
    assert caught.value.where == "model.kind" and 'top = "squared"' in caught.value.hint


def test_linear_regression_refuses_labels() -> None:
    with pytest.raises(BadInput, match="predicts a number, and the task has 3 labels") as caught:
        build(kind="linear")
    assert caught.value.where == "model.kind" and "softmax" in caught.value.hint


@pytest.mark.parametrize("kind", ["softmax", "logistic", "svm", "huber"])
def test_linear_models_may_begin_at_random(kind: str) -> None:
    """Crowd-ML 2015 begins so; the same coins give the same beginning, and other coins another."""
    coins = [HashCoins(np.array([seed, 7], np.uint32), 0, NUMPY) for seed in (1, 1, 2)]
    built = MODELS[kind].model_validate({"kind": kind, "start": "random"}).build(5, some_labels(2), NUMPY)
    one, same, other = (np.asarray(built.init(each)[0]["w"]) for each in coins)
    assert np.abs(one).min() > 0 and (one == same).all() and (one != other).any()
    plain = MODELS[kind].model_validate({"kind": kind}).build(5, some_labels(2), NUMPY)
    assert not np.asarray(plain.init(coins[0])[0]["w"]).any()
