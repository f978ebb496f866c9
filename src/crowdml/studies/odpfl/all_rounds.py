"""ODPFL's own setting to its end: figure 1 after 130 rounds and figure 2 after 200, curve by curve.

Rows are dealt without replacement, as in the paper's figure 2; the first 130 rounds of 200 are what 130 rounds alone
would be, so one run has both. A round takes minutes of a processor, so each curve can be run by itself and interrupted:
`crowdml reproduce odpfl/own-all --curve LABEL --resume --record results`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import ACCURACY, learns, level, shown
from crowdml.studies.odpfl.averages import FULL, LOSS
from crowdml.studies.odpfl.own import ALL_ROUNDS, OWN, WAYS, both_figures
from crowdml.studies.study import ByCurve, Row, Study, curve

ROUNDS, POINTS = 200, 20
"""What figure 2 has; and points of the curve, of which that after 130 rounds must be one."""
TOLERANCE = 0.02
FIGURES: Mapping[int, Mapping[str, float]] = {
    ALL_ROUNDS: {"plain": 0.80, "learned": 0.80},
    ROUNDS: {"plain": 0.65, "learned": 0.80},
}
"""By rounds, what the paper reports: figure 1, then figure 2."""


def _rows(label: str, result: Result) -> Iterator[Row]:
    errors = np.asarray(result.measured["test_error"], np.float64)
    for rounds, published in FIGURES.items():
        at = rounds * len(errors) // ROUNDS - 1
        found, paper = 1 - errors[at], published[label]
        yield level(
            label,
            _metric(rounds),
            found,
            paper,
            tolerance=TOLERANCE,
            claim=learns(result, at=at) and float(found.mean()) >= paper - TOLERANCE,
            better="more",
            claimed="not lower by more, and it learns",
        )
    yield shown(label, "test loss", np.asarray(result.measured["test_loss"][-1], np.float64))


def _metric(rounds: int) -> str:
    return f"{ACCURACY} after {rounds} rounds"


CURVES = tuple(
    curve(way, *averaged, f"crowd.passes={ROUNDS}", f"crowd.curve={POINTS}", LOSS) for way, averaged in WAYS.items()
)
ALL = Study(
    title=f"plain and learned averaging in the paper's own setting, {ALL_ROUNDS} and {ROUNDS} rounds",
    claim="accuracy is not below the paper's, with plain and with learned averaging",
    refuted_by=f"an accuracy lower by more than {TOLERANCE:g}, or a net that learns nothing",
    tuned="given",
    hours=True,
    task=FULL,
    curves=CURVES,
    rows=ByCurve(rows=_rows, metric=_metric(ROUNDS), published=FIGURES[ROUNDS]),
    draw=both_figures(CURVES),
    trials=1,
    notes=(
        OWN.notes[1],
        f"after {ALL_ROUNDS} rounds it stands beside figure 1, whose rows the paper draws with replacement, and after "
        f"{ROUNDS} beside figure 2; here rows are dealt without in both",
    ),
)
