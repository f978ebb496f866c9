"""A model that leaves as ONNX answers as it did here, on rows as owners have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from crowdml.core import NUMPY, BadInput, Graph, trees
from crowdml.data.transforms import TRANSFORMS, Transform, compose, fit_rows
from crowdml.models import MODELS, build
from crowdml.models.layers import LAYERS
from crowdml.models.layers.layer import Layer
from crowdml.models.losses import LOSSES
from crowdml.task import Task
from crowdml.task.model_files import to_onnx
from tests.support.targets import some_labels

ROWS = 200
Floats = npt.NDArray[np.float32]

EVERY_LAYER: list[dict[str, Any]] = [
    {"kind": "tanh"},
    {"kind": "flatten"},
    {"kind": "dense", "size": 5},
    {"kind": "sigmoid"},
    {"kind": "dense", "size": 4, "bias": False},
    {"kind": "relu"},
    {"kind": "dense", "size": 3},
]
PICTURES: list[dict[str, Any]] = [
    {"kind": "convolution", "size": 4, "kernel": 4, "start-scale": 2.0},
    {"kind": "group-norm", "groups": 2},
    {"kind": "pooling", "size": 3, "stride": 2, "padding": "same"},
    {"kind": "convolution", "size": 4, "connections": 2, "bias": False},
    {"kind": "batch-norm"},
    {"kind": "pooling", "of": "average"},
    {"kind": "flatten"},
    {"kind": "dense", "size": 8},
    {"kind": "group-norm", "groups": 2, "affine": False},
    {"kind": "dense", "size": 3},
]
KINDS: dict[str, dict[str, Any]] = {
    "softmax": {"kind": "softmax"},
    "softmax with bias": {"kind": "softmax", "bias": True},
    "logistic": {"kind": "logistic"},
    "svm": {"kind": "svm"},
    "huber": {"kind": "huber"},
    "mlp": {"kind": "mlp", "layers": [7, 4], "activation": "tanh"},
    "mlp of squares": {"kind": "mlp", "layers": [5], "activation": "sigmoid", "top": "squared"},
    "layers": {"kind": "layers", "layers": EVERY_LAYER, "shape": [2, 3]},
    "layers, hinge": {"kind": "layers", "layers": [{"kind": "dense", "size": 1}], "loss": "hinge"},
}
SERIES: list[dict[str, Any]] = [
    {"kind": "convolution-1d", "size": 4, "kernel": 4, "stride": 2},
    {"kind": "residual", "layers": [{"kind": "tanh"}, {"kind": "convolution-1d", "size": 4}]},
    {"kind": "flatten"},
    {"kind": "dense", "size": 3},
]
PICTURE_KINDS: dict[str, dict[str, Any]] = {
    "series": {"kind": "layers", "layers": SERIES, "shape": [80, 2]},
    "cnn": {"kind": "cnn", "shape": [8, 10, 2], "convolutions": [3, 4], "layers": [5]},
    "cnn, average": {"kind": "cnn", "shape": [8, 10, 2], "pool": "average", "norm": "group", "activation": "relu"},
    "pictures": {"kind": "layers", "layers": PICTURES, "shape": [8, 10, 2]},
}
CHAINS: dict[str, tuple[int, list[dict[str, Any]]]] = {
    "scale": (6, [{"kind": "scale", "by": 0.0625}]),
    "norm": (6, [{"kind": "norm", "order": 1, "exactly": 2.0}, {"kind": "norm", "order": 2, "at-most": 0.7}]),
    "norm, centred": (6, [{"kind": "norm", "order": 2, "exactly": 2.0, "centre": True}]),
    "norm at most": (6, [{"kind": "norm", "order": 1, "at-most": 4.0}]),
    "scale-columns": (
        6,
        [
            {
                "kind": "scale-columns",
                "columns": [{"first": 1, "last": 2, "by": 3.0}, {"first": 5, "last": 5, "by": 0.5}],
            }
        ],
    ),
    "intercept": (6, [{"kind": "intercept", "value": 0.25}]),
    "standardise": (6, [{"kind": "standardise"}]),
    "pca": (6, [{"kind": "pca", "components": 3}]),
    "fft": (7, [{"kind": "fft"}]),
    "one-hot": (6, [{"kind": "one-hot", "column": 2, "size": 4}]),
    "one-hot, first and last": (
        6,
        [{"kind": "one-hot", "column": 5, "size": 4}, {"kind": "one-hot", "column": 0, "size": 4}],
    ),
    "random-features": (16 * 16 * 3, [{"kind": "random-features", "size": 16, "filters": 6}]),
    "scattering": (16 * 16 * 3, [{"kind": "scattering", "size": 16, "grid": 2}]),
    "scattering of grey": (16 * 16, [{"kind": "scattering", "size": 16, "grid": 4, "colours": 1}]),
    "several": (6, [{"kind": "standardise"}, {"kind": "intercept"}, {"kind": "norm", "order": 2, "at-most": 1.0}]),
}


REGRESSORS: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "linear-huber": {"kind": "linear", "loss": "huber", "bias": False},
    "mlp-squared": {"kind": "mlp", "layers": [5], "top": "squared"},
    "mlp-huber": {"kind": "mlp", "layers": [5], "activation": "tanh", "top": "huber"},
}


def a_task(model: dict[str, Any], features: int = 6, chain: list[dict[str, Any]] | None = None) -> Task:
    two = model["kind"] in ("logistic", "svm", "huber") or model.get("loss") == "hinge"
    content = {
        "crowdml": 1,
        "name": "t",
        "data": {"features": features, "labels": ["a", "b", "c"][: 2 if two else 3], "transform": chain or []},
        "model": model,
        "algorithm": {"kind": "crowd-sgd", "batch": 1},
        "privacy": {"mode": "none"},
    }
    return Task.model_validate(content, by_alias=True, by_name=False)


def random_parameters(task: Task) -> Any:
    random = np.random.default_rng(9 if len(task.model_for(NUMPY).shape) == 3 else 5)  # every model tells rows apart
    zeros = task.model_for(NUMPY).zeros()
    drawn = trees.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), zeros)
    # What a batch normalisation remembers as a variance is never negative.
    return trees.map_paths(lambda path, leaf: abs(leaf) if path.endswith("/variance") else leaf, drawn)


def rows_for(features: int) -> Floats:
    """Class numbers, pixels and zero rows: something for every transform."""
    rows = np.random.default_rng(2).integers(0, 4 if features < 100 else 256, (ROWS, features)).astype(np.float32)
    rows[0] = 0
    return rows


def answers(task: Task, rows: Floats) -> tuple[tuple[Floats, Any], tuple[Floats, Any]]:
    """Scores and labels: of the exported file, and of the model here."""
    chain: list[Transform] = task.data.transform
    fitted, parameters = fit_rows(chain, rows), random_parameters(task)
    raw = to_onnx(task, [transform.arrays for transform in fitted], parameters, {})
    scores, label = onnxruntime.InferenceSession(raw).run(["scores", "label"], {"rows": rows})
    model, prepared = task.model_for(NUMPY), compose(fitted)(rows)
    return (scores, label), (model.outputs(parameters, prepared).T, model.predict(parameters, prepared))


def same(found: tuple[Floats, Any], expected: tuple[Floats, Any]) -> None:
    (scores, label), (wanted, right) = found, expected
    assert scores.dtype == np.float32 and label.dtype == np.int64 and label.shape == (ROWS,)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=2e-6 * scale)
    # The largest score, or the sign, may fall either way where a tie is closer than the arithmetic.
    ordered = np.sort(wanted, axis=1)
    clear = np.abs(wanted[:, 0]) if wanted.shape[1] == 1 else ordered[:, -1] - ordered[:, -2]
    sure = clear > 1e-5 * scale
    assert sure.mean() > 0.9 and len(np.unique(right)) > 1
    np.testing.assert_array_equal(label[sure], np.asarray(right)[sure])


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_answers_alike(name: str) -> None:
    same(*answers(a_task(KINDS[name]), rows_for(6) - 1.5))


@pytest.mark.parametrize("name", PICTURE_KINDS)
def test_models_of_pictures_answer_alike(name: str) -> None:
    rows = (rows_for(160) / 64 - 1.5).astype(np.float32)
    rows[:, :80] *= np.linspace(-3, 3, ROWS, dtype=np.float32)[:, None]  # pictures that differ from each other
    same(*answers(a_task(PICTURE_KINDS[name], 160), rows))


@pytest.mark.parametrize("name", CHAINS)
def test_every_transform_is_inside(name: str) -> None:
    features, chain = CHAINS[name]
    same(*answers(a_task({"kind": "softmax"}, features, chain), rows_for(features)))


def test_nothing_is_left_out() -> None:
    written = {model["kind"] for model in (*KINDS.values(), *PICTURE_KINDS.values(), *REGRESSORS.values())}
    assert written == set(MODELS) - {"own"}  # which crowdml does not look into
    assert {layer["kind"] for layer in (*EVERY_LAYER, *PICTURES, *SERIES)} == set(LAYERS)
    assert {transform["kind"] for _, chain in CHAINS.values() for transform in chain} == set(TRANSFORMS)


def test_the_metadata_travel() -> None:
    task = a_task({"kind": "softmax"})
    raw = to_onnx(task, [], random_parameters(task), {"labels": json.dumps(["ä"]), "privacy": "no formal guarantee"})
    found = onnxruntime.InferenceSession(raw).get_modelmeta().custom_metadata_map
    assert json.loads(found["labels"]) == ["ä"] and found["privacy"] == "no formal guarantee"
    assert "transforms are inside" in found["input"]


def test_the_file_is_read_by_runtimes_of_2022() -> None:
    task = a_task({"kind": "softmax"})
    model = onnx.load_from_string(to_onnx(task, [], random_parameters(task), {}))
    assert [entry.version for entry in model.opset_import] == [17] and model.ir_version == 8


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_model_of_a_number_answers_in_the_targets_own_unit(name: str) -> None:
    labelled = a_task({"kind": "softmax"}, 6, [{"kind": "scale", "by": 0.1}])
    content = labelled.model_dump(by_alias=True) | {"model": REGRESSORS[name]}
    content["data"]["target"] = {"name": "heat", "low": -40.0, "high": 125.0, "unit": "°C"}
    content["data"].pop("labels")
    task = Task.model_validate(content, by_alias=True, by_name=False)
    rows, parameters = rows_for(6) - 1.5, trees.map(lambda leaf: leaf * np.float32(0.5), random_parameters(task))
    raw = to_onnx(task, [{}], parameters, task.target.metadata)
    session = onnxruntime.InferenceSession(raw)
    scores, value = session.run(["scores", "value"], {"rows": rows})
    assert value.dtype == np.float32 and value.shape == (ROWS,) and scores.shape == (ROWS, 1)
    assert [output.name for output in session.get_outputs()] == ["scores", "value"]
    assert json.loads(session.get_modelmeta().custom_metadata_map["target"])["unit"] == "°C"
    predicted = task.model_for(NUMPY).predict(parameters, compose(fit_rows(task.data.transform, rows))(rows))
    np.testing.assert_allclose(value, task.target.decode(predicted), atol=1e-3)
    assert value.min() >= -40 and value.max() <= 125 and np.ptp(value) > 1


def test_what_cannot_be_written_is_refused() -> None:
    class Mute:
        def build(self, shape: tuple[int, ...], ops: Any) -> Layer:
            keep: Callable[..., Any] = lambda *_: {}  # noqa: E731
            return Layer(shape=shape, init=keep, forward=keep, pull_back=keep, factors=keep)

    model = build((Mute(),), LOSSES["softmax"](some_labels(3), NUMPY), 3, NUMPY)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="cannot be exported"):
        model.write(Graph(), ({},), "rows")
    with pytest.raises(BadInput, match="own cannot be exported"):
        Transform.write(TRANSFORMS["scale"].model_construct(kind="own"), Graph(), "rows", {})
