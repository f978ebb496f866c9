"""ODPFL's own setting to its end: figure 1 after 130 rounds and figure 2 after 200, curve by curve.

Rows are dealt without replacement, as in the paper's figure 2. The rate is constant: the first 130 rounds of 200 are as
good as 130 alone, which would draw other orders of rows, so one run has both. A round takes minutes of a processor, so
each curve can be run by itself and interrupted: `crowdml reproduce odpfl/own-all --curve LABEL --resume --record
results`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import ACCURACY, Floats, learns, level, shown
from crowdml.studies.odpfl.averages import FULL, LEAST_GAIN, LOSS
from crowdml.studies.odpfl.own import ALL_ROUNDS, OWN, WAYS, both_figures
from crowdml.studies.study import ByCurve, Row, Study, curve

ROUNDS, POINTS = 200, 20
"""What figure 2 has; and points of the curve, of which that after 130 rounds must be one."""
TOLERANCE = 0.02
PLAIN, LEARNED = "plain", "learned"
REACHED, BEHIND = 0.80, 0.65
"""What the paper reports: of both ways in figure 1 and of learned averaging in figure 2; of plain averaging there."""
HIGHEST = REACHED - LEAST_GAIN
"""Where plain averaging comes above this after 200 rounds, what the paper gains is not to be gained."""


def _rows(label: str, result: Result) -> Iterator[Row]:
    errors = np.asarray(result.measured["test_error"], np.float64)
    for rounds in (ALL_ROUNDS, ROUNDS):
        at = rounds * len(errors) // ROUNDS - 1
        if (label, rounds) == (PLAIN, ROUNDS):
            yield _far_behind(label, 1 - errors[at], learns(result, at=at))
        else:
            yield _not_below(label, rounds, 1 - errors[at], learns(result, at=at))
    yield shown(label, "test loss", np.asarray(result.measured["test_loss"][-1], np.float64))


def _not_below(label: str, rounds: int, found: Floats, learnt: bool) -> Row:
    """Set what both ways reach beside figure 1, and learned averaging beside figure 2."""
    return level(
        label,
        _metric(rounds),
        found,
        REACHED,
        tolerance=TOLERANCE,
        claim=learnt and float(found.mean()) >= REACHED - TOLERANCE,
        better="more",
        claimed="not lower by more, and it learns",
    )


def _far_behind(label: str, found: Floats, learnt: bool) -> Row:
    """Set plain averaging beside figure 2: where it is better than the paper's, the gain is refuted."""
    return level(
        label,
        _metric(ROUNDS),
        found,
        BEHIND,
        tolerance=TOLERANCE,
        claim=learnt and float(found.mean()) <= HIGHEST,
        claimed=f"at most {HIGHEST:g}, {LEAST_GAIN:g} below what learned averaging has there, and it learns",
    )


def _metric(rounds: int) -> str:
    return f"{ACCURACY} after {rounds} rounds"


CURVES = tuple(
    curve(way, *averaged, f"crowd.passes={ROUNDS}", f"crowd.curve={POINTS}", LOSS) for way, averaged in WAYS.items()
)
ALL = Study(
    title=f"plain and learned averaging in the paper's own setting, {ALL_ROUNDS} and {ROUNDS} rounds",
    claim=f"after {ALL_ROUNDS} rounds both reach {REACHED:g}; after {ROUNDS} learned averaging does, and plain "
    f"averaging comes to {BEHIND:g} only",
    refuted_by=f"plain averaging above {HIGHEST:g} after {ROUNDS} rounds, or anything else lower than {REACHED:g} by "
    f"more than {TOLERANCE:g}",
    tuned="given",
    hours=True,
    task=FULL,
    curves=CURVES,
    rows=ByCurve(rows=_rows, metric=_metric(ROUNDS), published={PLAIN: BEHIND, LEARNED: REACHED}),
    draw=both_figures(CURVES),
    trials=1,
    notes=(
        OWN.notes[1],
        f"after {ALL_ROUNDS} rounds it stands beside figure 1, whose rows the paper draws with replacement, and after "
        f"{ROUNDS} beside figure 2; here rows are dealt without in both",
    ),
)
