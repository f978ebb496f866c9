"""What the studies of ADMM share: the task file, the centralised fit, and comparisons split by split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdml.simulation import Result
from crowdml.studies.comparisons import learns, shown, spread, statement
from crowdml.studies.contract import Curve, Row

TASK = Path(__file__).parents[1] / "tasks" / "adult.toml"
SPLITS = 5
CENTRALISED = "centralised"
TUNED = "hyper-parameters were chosen on rows held back from training rows; tuning is not charged to any ε"
Floats = npt.NDArray[np.float64]

CENTRAL = Curve(
    label=CENTRALISED,
    changes=('algorithm={ kind = "central-batch", iterations = 500 }', "stop={}"),
    chosen={"model.regularisation": 3e-7},
    grid={"model.regularisation": (3e-8, 3e-7, 3e-6)},
)
"""All rows in one place, without noise; the strength 3e-7 on the mean loss is β = 0.01 on the sum."""

MASKED = "sums={ masked = true, honest = 1.0, drop-out = 0.0 }"
"""As in the paper's evaluation: γ = 1, and nobody is lost."""


def accuracies(result: Result) -> Floats:
    """Return the accuracy of every split at the end."""
    return np.asarray(1 - result.measured["test_error"][-1], np.float64)


def behind(results: Mapping[str, Result], label: str) -> Floats:
    """Return what is missing to the centralised fit on the same split, for every split."""
    return accuracies(results[CENTRALISED]) - accuracies(results[label])


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    return float(spread(values) / len(values) ** 0.5)


def shown_level(results: Mapping[str, Result], label: str) -> Row:
    """Show an accuracy that nothing is claimed of."""
    values = accuracies(results[label])
    return shown(label, "test accuracy", float(values.mean()), spread(values))


def gap(results: Mapping[str, Result], label: str, most: float | None = None) -> Row:
    """Show what is missing to the centralised fit, split by split, and whether that is little enough."""
    values = behind(results, label)
    ours = float(values.mean())
    metric = f"behind centralised (s.e. {standard_error(values):.4f})"
    if most is None:
        return shown(label, metric, ours, spread(values))
    near = ours <= most and learns(results[label])
    return statement(label, metric, ours, near, f"at most {most:g}, and it learns", spread(values))
