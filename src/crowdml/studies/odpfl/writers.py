"""A model of one's own: 539 writers of MNIST's digits, one device each, with steps of their own at the end.

The common model is learnt by federated averaging; then every writer takes 20 steps on their own digits, of which
nothing leaves the device. Both are measured on digits of the same writers that nobody trained on. Beside it: what each
writer could learn alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crowdml.simulation import Result
from crowdml.simulation.baselines import COMMON
from crowdml.studies.comparisons import Floats, accuracies, shown, statement
from crowdml.studies.figure import Figure
from crowdml.studies.figure_makers import bars
from crowdml.studies.study import TASKS, Results, Row, Study, curve, searched_rate

LEAST = 0.965
"""What 20 steps of each writer's own should reach."""
TOGETHER, ALONE = "federated averaging", "each writer alone"
_ALONE_STEPS = 200


def _accuracy(result: Result, *, personal: bool) -> Floats:
    """Return accuracies on held-out digits, trial by trial: of the writers' own models, or of the common one."""
    errors = [errors for name, errors in result.baselines.items() if (name == COMMON) != personal]
    return 1 - np.asarray(errors[0], np.float64)


def _found(results: Results) -> dict[str, Floats]:
    together = results[TOGETHER]
    return {
        "common model, digits of other writers": accuracies(together),
        "common model, held-out digits of the same writers": _accuracy(together, personal=False),
        "common model and 20 steps of each writer's own": _accuracy(together, personal=True),
        f"each writer alone, {_ALONE_STEPS} steps": _accuracy(results[ALONE], personal=True),
    }


def _rows(results: Results) -> Iterator[Row]:
    for setting, values in _found(results).items():
        if "20 steps" in setting:
            yield statement(setting, "accuracy", values, float(values.mean()) >= LEAST, f"at least {LEAST:g}")
        else:
            yield shown(setting, "accuracy", values)


def _draw(results: Results) -> Figure:
    """Draw the four accuracies as bars."""
    others, same, personal, alone = (100 * values for values in _found(results).values())
    groups = {
        f"each writer alone,\n{_ALONE_STEPS} steps": {"": alone},
        "common model,\nother writers": {"": others},
        "common model,\nsame writers": {"": same},
        "common model and\n20 own steps": {"": personal},
    }
    return bars(groups, "accuracy on digits nobody trained on, %", [(100 * LEAST, "wanted")])


WRITERS = Study(
    title="models of one's own: 539 writers of MNIST",
    claim="(ours, not the paper's) 20 steps of each writer's own reach 0.965 on the writer's held-out digits",
    refuted_by="less than that",
    tuned="held back",
    unstated=searched_rate(TOGETHER, (1.0, 3.0, 10.0), given=1.0, used=3.0),
    task=TASKS / "mnist-writers.toml",
    curves=(
        curve(TOGETHER),
        curve(
            ALONE,
            "algorithm.rate.c=1e-9",
            "algorithm.per-round=539",
            "crowd.passes=1",
            "crowd.curve=1",
            f"crowd.personal={{ steps = {_ALONE_STEPS}, batch = 50, rate = 0.5, held-out = 0.2 }}",
        ),
    ),
    rows=_rows,
    trials=3,
    draw=_draw,
    notes=(
        "not a figure of the paper; a fifth of each writer's digits is held out",
        "the test rows of MNIST are of other writers than its training rows",
    ),
)
