"""Estimators: scikit-learn's own checks, promises that hold, and grids over ε."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from crowdml.core import BadInput
from crowdml.sklearn import CrowdClassifier, CrowdRegressor

Table = tuple[Any, Any]


@pytest.fixture(scope="module")
def cancer() -> Table:
    rows, labels = load_breast_cancer(return_X_y=True)
    return (rows - rows.mean(axis=0)) / rows.std(axis=0), labels


@pytest.fixture(scope="module")
def diabetes() -> Table:
    rows, values = load_diabetes(return_X_y=True)
    return rows * math.sqrt(len(rows)), values


@pytest.mark.parametrize("kind", [CrowdClassifier, CrowdRegressor])
def test_the_checks_of_scikit_learn_pass(kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        found = check_estimator(kind(devices=5), on_fail=None)
    assert [(check["check_name"], check["exception"]) for check in found if check["status"] == "failed"] == []
    skipped = {check["check_name"] for check in found if check["status"] == "skipped"}
    # It needs a variable in the environment before scikit-learn is imported, and is about other arrays than NumPy's.
    assert skipped <= {"check_array_api_input"} and len(found) > 40


def test_a_classifier_learns_and_says_what_it_knows(cancer: Table) -> None:
    rows, labels = cancer
    names = np.array(["malignant", "benign"])[labels]
    learnt = CrowdClassifier(random_state=1).fit(rows, names)
    assert learnt.score(rows, names) > 0.95 and learnt.classes_.tolist() == ["benign", "malignant"]
    shares = learnt.predict_proba(rows)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (learnt.classes_[shares.argmax(axis=1)] == learnt.predict(rows)).all()
    assert learnt.epsilon_ == math.inf and learnt.n_features_in_ == 30
    assert learnt.result_.task.crowd.devices == 10 and learnt.result_.engine == "numpy"


def test_values_of_numpy_are_those_of_python(cancer: Table) -> None:
    rows, labels = cancer
    plain = CrowdClassifier(
        passes=3, devices=4, rate=0.25, epsilon=8.0, model={"kind": "mlp", "layers": [4]}, random_state=1
    )
    kinds: dict[str, Any] = {
        "passes": np.int64(3),
        "devices": np.int32(4),
        "rate": np.float32(0.25),
        "epsilon": np.float64(8),
    }
    grown = clone(plain).set_params(**kinds, model={"kind": "mlp", "layers": np.array([4])})
    assert (grown.fit(rows, labels).predict(rows) == plain.fit(rows, labels).predict(rows)).all()
    assert grown.epsilon_ == plain.epsilon_


def test_targets_beyond_their_bounds_are_told(diabetes: Table) -> None:
    rows, values = diabetes
    learnt = CrowdRegressor(low=25.0, high=300.0, passes=2, random_state=0).fit(rows, values)
    assert any(f"{int((values > 300).sum())} targets of estimator lie beyond" in one for one in learnt.result_.warnings)


@pytest.mark.parametrize("unit", ["sample", "device"])
def test_what_is_promised_is_not_exceeded(unit: str, cancer: Table) -> None:
    made = CrowdClassifier(epsilon=4.0, delta=1e-4, unit=unit, passes=10, random_state=0)
    learnt = made.fit(*cancer)
    assert 3.5 < learnt.epsilon_ <= 4.0 and learnt.result_.privacy["unit"] == unit
    assert learnt.result_.privacy["promised"]["epsilon"] <= 4.0
    assert learnt.score(*cancer) > (0.9 if unit == "sample" else 0.6)
    weights = [made.fit(*cancer).result_.parameters[0]["w"] for _ in range(2)]
    np.testing.assert_array_equal(*weights)
    other = clone(made).set_params(random_state=1).fit(*cancer).result_.parameters[0]["w"]
    assert not np.array_equal(weights[0], other)


def test_every_owner_is_a_device(cancer: Table) -> None:
    rows, labels = cancer
    owners = np.array([f"clinic {at % 6}" for at in range(len(labels))])
    learnt = CrowdClassifier(random_state=0, passes=10).fit(rows, labels, owners=owners)
    assert learnt.result_.task.crowd.devices == 6 and learnt.result_.task.crowd.partition.kind == "writer"
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CrowdClassifier().fit(rows, labels, owners=owners[1:])


def test_a_regressor_needs_bounds_for_a_promise(diabetes: Table) -> None:
    rows, values = diabetes
    assert CrowdRegressor(random_state=0).fit(rows, values).score(rows, values) > 0.45
    with pytest.raises(BadInput, match=r"low, high: a promise needs bounds of the target"):
        CrowdRegressor(epsilon=8.0).fit(rows, values)
    private = CrowdRegressor(epsilon=8.0, delta=1e-4, low=25.0, high=346.0, passes=20, random_state=0)
    assert private.fit(rows, values).score(rows, values) > 0.3 and private.epsilon_ <= 8.0
    assert (np.abs(private.predict(100 * rows) - 185.5) <= 160.5 + 1e-9).all(), "never beyond the bounds"


def test_models_algorithms_and_any_other_setting(cancer: Table) -> None:
    net = CrowdClassifier(model={"kind": "mlp", "layers": [5]}, rate=0.1, random_state=0).fit(*cancer)
    assert net.score(*cancer) > 0.9 and net.predict_proba(cancer[0][:2]).shape == (2, 2)
    settings = {"algorithm.batch": 10, "model.bias": True}
    other = CrowdClassifier(model="logistic", algorithm="crowd-sgd", settings=settings, passes=2, random_state=0)
    assert other.fit(*cancer).score(*cancer) > 0.9
    assert other.result_.task.algorithm.batch == 10 and "b" in other.result_.parameters[0]
    assert other.predict_proba(cancer[0][:3]).shape == (3, 2)
    assert not hasattr(CrowdClassifier(model="svm"), "predict_proba")
    for algorithm in ("fedavg", "local-sgd"):
        some = CrowdClassifier(algorithm=algorithm, passes=5, engine="numpy", random_state=0)
        assert some.fit(*cancer).score(*cancer) > 0.9, algorithm
    with pytest.raises(BadInput, match="fedsg"):
        CrowdClassifier(algorithm="fedsg").fit(*cancer)


@pytest.mark.parametrize(
    "transform",
    [{"kind": "scale", "by": -2.0}, {"kind": "intercept"}, {"kind": "pca", "components": 3}, {"kind": "standardise"}],
    ids=lambda transform: transform["kind"],
)
def test_what_is_predicted_goes_through_the_same_transforms(transform: dict[str, Any], cancer: Table) -> None:
    settings = {"data.transform": [transform]}
    learnt = CrowdClassifier(settings=settings, passes=10, engine="numpy", random_state=0).fit(*cancer)
    assert learnt.score(*cancer) > 0.9
    known = learnt.result_.model.predict_proba(cancer[0])
    np.testing.assert_allclose(learnt.predict_proba(cancer[0]), known, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["local-fit", "decentral"])
def test_where_every_device_has_its_own_model_nothing_is_fitted(algorithm: str, cancer: Table) -> None:
    alone = CrowdClassifier(algorithm=algorithm, passes=1, engine="numpy", random_state=0)
    with pytest.raises(BadInput, match=f"every device of {algorithm} has a model of its own"):
        alone.fit(*cancer)
    assert not hasattr(alone, "result_")


def test_a_copy_predicts_the_same(cancer: Table) -> None:
    learnt = CrowdClassifier(random_state=0, passes=2, engine="numpy").fit(*cancer)
    again = copy.deepcopy(learnt)
    np.testing.assert_array_equal(again.predict_proba(cancer[0]), learnt.predict_proba(cancer[0]))
    assert again.result_.task == learnt.result_.task


def test_a_pickle_predicts_the_same(cancer: Table) -> None:
    learnt = CrowdClassifier(random_state=0, passes=5, epsilon=8.0, delta=1e-4).fit(*cancer)
    again = pickle.loads(pickle.dumps(learnt))  # noqa: S301
    np.testing.assert_array_equal(again.predict_proba(cancer[0]), learnt.predict_proba(cancer[0]))
    assert again.result_.task == learnt.result_.task and again.result_.task.calibrated.terms.promised


def test_a_grid_over_epsilon_in_a_pipeline(cancer: Table) -> None:
    private = CrowdClassifier(delta=1e-4, passes=10, random_state=0)
    grid = GridSearchCV(
        make_pipeline(FunctionTransformer(lambda rows: rows / 5), private),
        {"crowdclassifier__epsilon": [0.05, 8.0]},
        cv=2,
    )
    grid.fit(*cancer)
    low, high = grid.cv_results_["mean_test_score"]
    assert high > low + 0.02 and grid.best_params_ == {"crowdclassifier__epsilon": 8.0}


def test_mistakes_are_told_in_plain_words(cancer: Table) -> None:
    rows, labels = cancer
    with pytest.raises(ValueError, match="y has one class, 0: there is nothing to tell apart"):
        CrowdClassifier().fit(rows, labels * 0)
    with pytest.raises(TypeError, match="settings are keys and their values"):
        CrowdClassifier(settings=["crowd.drop-out=0.1"]).fit(rows, labels)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"settings, model\.kind\.x: kind is not a section"):
        CrowdClassifier(settings={"model.kind.x": 1}).fit(rows, labels)
    with pytest.raises(TypeError, match='a kind, such as "softmax", or a section'):
        CrowdClassifier(model=3).fit(rows, labels)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="devices is a whole number, not 'ten'"):
        CrowdClassifier(devices="ten").fit(rows, labels)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="devices: 0 devices: at least one is needed"):
        CrowdClassifier(devices=0).fit(rows, labels)
    with pytest.raises(ValueError, match="y holds something that is no number"):
        CrowdRegressor().fit(rows, np.where(labels, "warm", "cold"))
