"""Local steps against communication: how many check-ins a net needs, by local steps S_d and rows per step B_d.

Not a figure of the paper: it measures the paper's reason for local steps, that they lower the number of messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import shown, statement
from crowdml.studies.figure import Figure
from crowdml.studies.figure_makers import check_ins, grid
from crowdml.studies.study import TASKS, Results, Row, Study, curve

STEPS, ROWS = (0, 1, 5, 20), (10, 50)
WANTED, FEWER = 0.9, 0.5
RATE = "algorithm.rate.c"
RATES = {(20, 10): 1.0}
"""By local steps and rows per step: what `--search` found best where it is not 3."""


def _label(steps: int, rows: int) -> str:
    return f"S_d = {steps}, B_d = {rows}"


def needed(result: Result) -> float:
    """Return the check-ins at which the mean accuracy first reaches what is wanted; infinite where it never does."""
    mean = 1 - result.measured["test_error"].mean(axis=1)
    reached = np.flatnonzero(mean >= WANTED)
    return float(check_ins(result)[reached[0]]) if len(reached) else float("inf")


def _rows(results: Results) -> Iterator[Row]:
    for label, result in results.items():
        yield shown(label, "test accuracy after all check-ins", 1 - result.test_error)
        yield shown(label, f"check-ins to accuracy {WANTED}, if it gets there", needed(result))
    few, many = (needed(results[_label(steps, ROWS[-1])]) for steps in STEPS[-2:])
    ratio = many / few if np.isfinite(few) else float("nan")
    setting = f"{_label(STEPS[-1], ROWS[-1])} against S_d = {STEPS[-2]}"
    yield statement(setting, "check-ins needed, ratio", ratio, ratio <= FEWER, f"at most {FEWER:g} times the check-ins")


def _draw(results: Results) -> Figure:
    columns = {f"B_d = {rows}": {f"S_d = {steps}": results[_label(steps, rows)] for steps in STEPS} for rows in ROWS}
    return grid({"test accuracy": columns})


TRADE_OFF = Study(
    title="test accuracy by check-ins, local steps and rows per step",
    claim="(the paper's reason, not a figure of it) local steps lower the number of messages",
    refuted_by=f"20 local steps that need more than {FEWER:g} times the check-ins of 5, or never get there",
    tuned="held back",
    task=TASKS / "mnist-net.toml",
    curves=tuple(
        curve(
            _label(steps, rows),
            'privacy={ mode = "none" }',
            f"algorithm.local-steps={steps}",
            f"algorithm.local-batch={rows}",
            'algorithm.rate={ kind = "inverse-sqrt", c = 1.0, counter = "versions" }',
            "stop.max-versions=400",
            "crowd.devices=10",
            "crowd.passes=8",
            "crowd.curve=40",
            chosen={RATE: RATES.get((steps, rows), 3.0)},
            grid={RATE: (0.3, 1.0, 3.0, 10.0)},
        )
        for rows, steps in itertools.product(ROWS, STEPS)
    ),
    rows=_rows,
    trials=2,
    notes=("not a figure of the paper", "a message has 10,285 numbers, whatever the local steps"),
    draw=_draw,
)
