"""Estimators for scikit-learn: a simulated crowd that learns with `fit`, and predicts like any other model.

    CrowdClassifier(epsilon=8.0, devices=20).fit(X, y).predict(X)

The algorithm, the privacy terms and the crowd are constructor parameters, so `GridSearchCV`, `Pipeline` and `clone`
work as with every estimator. `fit(X, y, owners=…)` takes whose each row is: every owner is a device. Behind it stands
`crowdml.simulate`, whose result is kept as `result_`.

What ε covers is the fit, and nothing else: a scaler fitted on the same rows, the choice of hyper-parameters by their
scores, the scores themselves, and which labels occur in `y` (`classes_`) are not accounted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from crowdml.core import NUMPY, BadInput, Labels, Number, Target, trees
from crowdml.data import Dataset
from crowdml.data.rows.array_rows import read_owners
from crowdml.simulation.engines import LITTLE_WORK, work_of
from crowdml.simulation.run import simulate
from crowdml.task import Task
from crowdml.task.task import ALGORITHMS
from crowdml.task.task_checks import check
from crowdml.task.task_file import set_value

Array = npt.NDArray[Any]

MEASURED = 1000
"""Training rows on which a result is measured: an estimator has no others."""
SERVER_STEPS = ("crowd-sgd", "fedsgd", "central-sgd")
"""Algorithms whose server makes the step, so that AdaGrad can adapt it."""
PER_ROUND = 10
"""Devices of a round, where there are as many."""
FEW_CHECK_INS = 5000
"""Check-ins that a loop in NumPy makes sooner than a program would be compiled."""
NAME = "estimator"


class _CrowdEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor have in common: settings become a task, and a task is simulated."""

    def _learn(
        self, rows: Array, targets: Array, target: Target, data: dict[str, Any], owners: Any, outside: int = 0
    ) -> None:
        """Simulate the crowd.

        Args:
            rows: Numbers.
            targets: Encoded.
            target: What they mean.
            data: How a task file says that.
            owners: Whose each row is; None: dealt evenly.
            outside: How many targets lie beyond their bounds.
        """
        with np.errstate(over="ignore"):
            table = rows.astype(np.float32)
        if not np.isfinite(table).all():
            raise ValueError("X holds numbers that are too large for 32 bits: scale them first")
        if owners is not None:
            check_consistent_length(rows, owners)
        dataset = Dataset(
            name=NAME,
            train_rows=table,
            train_targets=targets,
            test_rows=table[:MEASURED],
            test_targets=targets[:MEASURED],
            target=target,
            train_owners=read_owners(owners, len(table)),
            outside=outside,
        )
        whose = dataset.train_owners
        if not isinstance(self.devices, Integral):
            raise TypeError(f"devices is a whole number, not {self.devices!r}")
        if self.devices < 1:
            raise BadInput(f"{self.devices} devices: at least one is needed", where="devices")
        devices = min(int(self.devices), len(table)) if whose is None else len(np.unique(whose))
        task = self._task(data | {"features": table.shape[1]}, devices, dealt=whose is None)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        found = simulate(task, seed=seed, engine=self._engine(task, len(table), devices), data=dataset)
        found.model  # noqa: B018  refuses, where every device has a model of its own and nothing could be predicted
        self.result_ = found
        self.n_iter_ = task.passes
        spent = self.result_.privacy[self.unit] if self.epsilon is not None else None
        self.epsilon_ = float(spent["epsilon"]) if spent else math.inf

    def _engine(self, task: Task, rows: int, devices: int) -> str:
        """Choose NumPy for what is over before a program would be compiled."""
        if self.engine != "auto":
            return str(self.engine)
        short = task.passes * devices <= FEW_CHECK_INS and work_of(task, rows) <= LITTLE_WORK
        return "numpy" if short else "auto"

    def _task(self, data: dict[str, Any], devices: int, *, dealt: bool) -> Task:
        """Write a task file's content out of the parameters, and read it."""
        content: dict[str, Any] = {
            "crowdml": 1,
            "name": NAME,
            "data": data,
            "model": _table(self.model),
            "algorithm": _table(self.algorithm),
            "privacy": {"mode": "none"},
            "crowd": {"passes": self.passes, "curve": 1},
        }
        for key, value in self._steps(content["algorithm"].get("kind"), devices).items():
            content["algorithm"].setdefault(key, value)
        if dealt:
            content["crowd"] |= {"devices": devices, "partition": _table(self.partition)}
        if self.epsilon is not None:
            terms = {"mode": "sound", "unit": self.unit, "epsilon": self.epsilon, "delta": self.delta}
            content["privacy"] = terms | {"mechanism": self.mechanism, "clip": self.clip}
            limits = {"sample": ("privacy", "max-uses"), "device": ("stop", "max-releases")}
            section, key = limits.get(self.unit, limits["sample"])
            content.setdefault(section, {})[key] = self.passes
            if "per-round" in content["algorithm"]:
                # In rounds all rows of a device are in each of its releases. Said for devices that remember them.
                content.setdefault("stop", {})["max-releases"] = self.passes
        if not isinstance(self.settings, Mapping | None):
            raise TypeError(
                f'settings are keys and their values, such as {{"crowd.drop-out": 0.1}}, not {self.settings!r}'
            )
        for path, value in (self.settings or {}).items():
            set_value(content, str(path).split("."), value, f"settings, {path}")
        task = Task.model_validate(_plain(content), by_alias=True, by_name=False)
        check(task)
        return task

    def _steps(self, kind: Any, devices: int) -> dict[str, Any]:
        """Say how long steps are, and how many devices a round has, for an algorithm that knows such things."""
        fields = getattr(ALGORITHMS.get(kind), "model_fields", {})
        found: dict[str, Any] = {"per-round": min(PER_ROUND, devices)} if "per_round" in fields else {}
        if "rate" not in fields:
            return found
        if isinstance(fields["rate"].default, float):
            return found | {"rate": self.rate}
        return found | {"rate": {"kind": "adagrad" if kind in SERVER_STEPS else "constant", "c": self.rate}}

    def _outputs(self, X: Any) -> Array:
        """Run the learnt model, in 64 bits: shape (outputs, rows)."""
        check_is_fitted(self, "result_")
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        learnt = self.result_.model
        if learnt.task.data.transform:
            rows = learnt.transformed(rows)
        parameters = trees.map(lambda leaf: np.asarray(leaf, np.float64), learnt.parameters)
        outputs: Array = learnt.task.model_for(NUMPY).outputs(parameters, rows)
        return outputs


def _table(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of a task file: a name is its kind."""
    if not isinstance(value, str | Mapping):
        raise TypeError(f'a kind, such as "softmax", or a section such as {{"kind": "softmax"}}, not {value!r}')
    return {"kind": value} if isinstance(value, str) else dict(value)


def _plain(value: Any) -> Any:
    """Return plain values for those of NumPy, as grids have them that were written as arrays."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _knows_probabilities(estimator: Any) -> bool:
    """Tell whether outputs of a classifier's model become probabilities."""
    model = _table(estimator.model)
    loss = model.get("top", model.get("loss", "softmax" if model.get("kind") in ("mlp", "cnn", "layers") else None))
    if (loss or model.get("kind")) in ("softmax", "logistic"):
        return True
    raise AttributeError(f"the model {estimator.model!r} has scores, no probabilities; softmax and logistic have")


class CrowdClassifier(ClassifierMixin, _CrowdEstimator):  # type: ignore[misc]
    """A classifier that a simulated crowd learns, with a promise to every sample or device where `epsilon` is given.

    >>> import numpy as np
    >>> rows, labels = np.array([[-1.0], [-2.0], [1.0], [2.0]] * 5), ["cold", "cold", "warm", "warm"] * 5
    >>> CrowdClassifier(devices=2, passes=20, random_state=0).fit(rows, labels).predict([[-3.0], [3.0]]).tolist()
    ['cold', 'warm']

    Args:
        model: Kind of model, such as "softmax", or its whole section, such as {"kind": "mlp", "layers": [20]}.
        algorithm: Kind of algorithm, such as "fedsgd", or its whole section.
        rate: Learning rate, unless the section of the algorithm has one: the step of AdaGrad where the server makes it,
            otherwise the same for all steps.
        passes: How often the crowd goes through its rows; with `epsilon`, what a sample or device is in at most.
        epsilon: Total ε of the fit; None: no noise, no promise.
        delta: δ of the promise.
        clip: Bound on what one row, or one device, adds.
        mechanism: The noise.
        unit: To whom ε is promised: "sample" or "device".
        devices: How many devices there are where nobody says whose the rows are.
        partition: How rows are dealt to them.
        settings: Any other keys of a task file, such as {"algorithm.per-round": 5}.
        engine: What runs it: "auto", "numpy" or "compiled".
        random_state: Makes fits repeatable. With `epsilon` it also decides the noise: fine for a simulation.

    Attributes:
        classes_: The labels.
        epsilon_: What the promise adds up to; infinite where there is none.
        result_: What `crowdml.simulate` found. Its errors are those on training rows.
        n_features_in_: Columns that were fitted.
    """

    def __init__(
        self,
        *,
        model: str | Mapping[str, Any] = "softmax",
        algorithm: str | Mapping[str, Any] = "fedsgd",
        rate: float = 0.3,
        passes: int = 50,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float = 1.0,
        mechanism: str = "gaussian",
        unit: str = "sample",
        devices: int = 10,
        partition: str | Mapping[str, Any] = "iid",
        settings: Mapping[str, Any] | None = None,
        engine: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.algorithm = algorithm
        self.rate = rate
        self.passes = passes
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.mechanism = mechanism
        self.unit = unit
        self.devices = devices
        self.partition = partition
        self.settings = settings
        self.engine = engine
        self.random_state = random_state

    def fit(self, X: Any, y: Any, owners: Any = None) -> CrowdClassifier:
        """Have a crowd learn.

        Args:
            X: Numbers, shape (rows, features).
            y: Labels.
            owners: Whose each row is: every owner is a device; not given: `partition` deals the rows to `devices`.
        """
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_.tolist()[0]!r}: there is nothing to tell apart")
        names = tuple(str(label) for label in self.classes_)
        self._learn(rows, numbers.astype(np.int32), Labels(names=names), {"labels": list(names)}, owners)
        return self

    def predict(self, X: Any) -> Array:
        """Return the label of every row."""
        outputs = self._outputs(X)
        predicted: Array = self.result_.task.model_for(NUMPY).loss.predict(outputs)
        found: Array = self.classes_[np.asarray(predicted, np.int64)]
        return found

    @available_if(_knows_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every label, shape (rows, labels), in the order of `classes_`."""
        outputs = self._outputs(X)
        if len(outputs) == 1:
            outputs = np.stack([np.zeros_like(outputs[0]), outputs[0]])
        grown = np.exp(outputs - outputs.max(axis=0))
        shares: Array = (grown / grown.sum(axis=0)).T
        return shares


class CrowdRegressor(RegressorMixin, _CrowdEstimator):  # type: ignore[misc]
    """A regressor that a simulated crowd learns, with a promise to every sample or device where `epsilon` is given.

    >>> import numpy as np
    >>> rows = np.linspace(-1, 1, 40)[:, None]
    >>> CrowdRegressor(low=0.0, high=4.0, random_state=0).fit(rows, 2 + rows[:, 0]).predict([[0.5]]).round(1).tolist()
    [2.5]

    Args:
        model: Kind of model, "linear", or its whole section, such as {"kind": "mlp", "top": "huber"}.
        low: Smallest value of the target, which everybody knows; None: the smallest in `y`, which `epsilon` forbids.
        high: Largest value.
        algorithm: As of `CrowdClassifier`, and so are all others.
        rate: Learning rate.
        passes: How often the crowd goes through its rows.
        epsilon: Total ε of the fit; None: no noise, no promise.
        delta: δ of the promise.
        clip: Bound on what one row, or one device, adds.
        mechanism: The noise.
        unit: To whom ε is promised.
        devices: How many devices there are.
        partition: How rows are dealt to them.
        settings: Any other keys of a task file.
        engine: What runs it.
        random_state: Makes fits repeatable.

    Attributes:
        epsilon_: What the promise adds up to; infinite where there is none.
        result_: What `crowdml.simulate` found.
        n_features_in_: Columns that were fitted.
    """

    def __init__(
        self,
        *,
        model: str | Mapping[str, Any] = "linear",
        low: float | None = None,
        high: float | None = None,
        algorithm: str | Mapping[str, Any] = "fedsgd",
        rate: float = 0.1,
        passes: int = 50,
        epsilon: float | None = None,
        delta: float = 1e-5,
        clip: float = 1.0,
        mechanism: str = "gaussian",
        unit: str = "sample",
        devices: int = 10,
        partition: str | Mapping[str, Any] = "iid",
        settings: Mapping[str, Any] | None = None,
        engine: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.low = low
        self.high = high
        self.algorithm = algorithm
        self.rate = rate
        self.passes = passes
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.mechanism = mechanism
        self.unit = unit
        self.devices = devices
        self.partition = partition
        self.settings = settings
        self.engine = engine
        self.random_state = random_state

    def fit(self, X: Any, y: Any, owners: Any = None) -> CrowdRegressor:
        """Have a crowd learn.

        Args:
            X: Numbers, shape (rows, features).
            y: What is predicted; values beyond `low` and `high` count as the nearer one.
            owners: Whose each row is: every owner is a device; not given: `partition` deals the rows to `devices`.
        """
        rows, values = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        try:
            values = values.astype(np.float64)
        except ValueError as error:
            raise ValueError(f"y holds something that is no number: {error}") from None
        if self.epsilon is not None and (self.low is None or self.high is None):
            raise BadInput(
                "a promise needs bounds of the target that were not looked up in y: they would tell of its most "
                "unusual owner",
                where="low, high",
                hint="give low and high as everybody knows them",
            )
        low = float(values.min()) if self.low is None else float(self.low)
        high = float(values.max()) if self.high is None else float(self.high)
        if self.low is None and self.high is None and not high - low > 1e-4 * max(abs(low), abs(high), 1e-30):
            low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))  # all values are the same
        target = {"name": "value", "low": low, "high": high}
        known = Number(low=low, high=high, name="value")
        self._learn(rows, known.encode(values), known, {"target": target}, owners, known.outside(values))
        return self

    def predict(self, X: Any) -> Array:
        """Return the value of every row, between `low` and `high`."""
        outputs = self._outputs(X)
        return self.result_.task.target.decode(outputs[0])
