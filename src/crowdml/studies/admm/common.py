"""What the studies of ADMM share: task file and splits, the centralised fit, and comparisons split by split."""

from __future__ import annotations

import functools

from crowdml.studies.comparisons import Floats, accuracies, learns, shown, standard_error, statement
from crowdml.studies.study import TASKS, Results, Row, Study, curve

adult_study = functools.partial(Study, task=TASKS / "adult.toml", trials=5)
"""Trials are splits of the rows."""
CENTRALISED = "centralised"
SPLITS = (
    "every trial splits the same rows anew, so rows that a search held back are test rows of some trials here; tuning "
    "is not charged to any ε"
)
TUNED = f"hyper-parameters were chosen on rows held back from training rows (--search); {SPLITS}"

CENTRAL = curve(
    CENTRALISED,
    'algorithm={ kind = "central-batch", iterations = 500 }',
    "stop={}",
    chosen={"model.regularisation": 3e-7},
    grid={"model.regularisation": (3e-8, 3e-7, 3e-6)},
)
"""All rows in one place, without noise; the strength 3e-7 on the mean loss is β = 0.01 on the sum."""

SECURE = "secure-aggregation={ enabled = true, honest = 1.0, drop-out = 0.0 }"
"""As in the paper's evaluation: γ = 1, and nobody is lost."""


def behind(results: Results, label: str) -> Floats:
    """Return what is missing to the centralised fit on the same split, for every split."""
    return accuracies(results[CENTRALISED]) - accuracies(results[label])


def gap(results: Results, label: str, most: float | None = None) -> Row:
    """Show what is missing to the centralised fit, split by split, and whether that is little enough."""
    values = behind(results, label)
    metric = f"behind centralised (s.e. {standard_error(values):.4f})"
    if most is None:
        return shown(label, metric, values)
    near = float(values.mean()) <= most and learns(results[label])
    return statement(label, metric, values, near, f"at most {most:g}, and it learns")
