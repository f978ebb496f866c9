"""Kinds of model: shapes that fit, and refusals of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from crowdml.core import NUMPY, BadInput
from crowdml.models import MODELS, Model
from crowdml.models.layers import LAYERS


def build(features: int = 6, classes: int = 3, **given: Any) -> Model:
    made = MODELS[given["kind"]].model_validate(given).build(features, classes, NUMPY)
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
            fields = settings.model_fields  # type: ignore[union-attr]
            assert fields["kind"].default == name
            assert settings.__doc__
            undescribed = [key for key, field in fields.items() if key != "kind" and not field.description]
            assert not undescribed, f"{name}: {undescribed}"
