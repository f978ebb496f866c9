"""ODPFL's own setting, as far as it was run: the first rounds of the 130 that figure 1 has.

A round takes minutes of a processor, so a curve stops after a few. The rate is constant, so the whole run begins like
this, but for the order in which devices go through their rows, which is drawn for all rounds at once. Nothing that
these rounds reach is set beside what the paper reports of the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import ACCURACY, accuracies, shown
from crowdml.studies.figure import Figure, line, panel
from crowdml.studies.odpfl.averages import FULL, LEARNED, LOSS, paper
from crowdml.studies.study import ByCurve, Curve, Results, Row, Study, curve

ROUNDS, ALL_ROUNDS = 5, 130
"""What a curve has, in minutes of a processor, and what the paper has."""
WAYS = {"plain": (), "learned": (LEARNED, *paper("constrained"))}
CROWDS = {"IID": (), "two shards of sorted rows": ('crowd.partition={ kind = "shards" }',)}


def _curves() -> tuple[Curve, ...]:
    run = (f"crowd.passes={ROUNDS}", f"crowd.curve={ROUNDS}", LOSS)
    return tuple(
        curve(f"{way}, {crowd}, after {ROUNDS} of {ALL_ROUNDS} rounds", *dealt, *averaged, *run)
        for crowd, dealt in CROWDS.items()
        for way, averaged in WAYS.items()
    )


def _rows(label: str, result: Result) -> Iterator[Row]:
    yield shown(label, ACCURACY, accuracies(result))
    yield shown(label, "test loss", np.asarray(result.measured["test_loss"][-1], np.float64))


CURVES = _curves()


def both_figures(order: Sequence[Curve]) -> Callable[[Results], Figure]:
    """Return what draws accuracy and loss round by round; each line looks the same whichever others were run."""
    places = {each.label: at for at, each in enumerate(order)}

    def draw(results: Results) -> Figure:
        right = {label: 1 - result.measured["test_error"] for label, result in results.items()}
        losses = {label: result.measured["test_loss"] for label, result in results.items()}
        panels = []
        for words, found in ((ACCURACY, right), ("test loss", losses)):
            shown = [
                line(
                    label,
                    np.asarray(results[label].samples, np.float64),
                    np.asarray(values, np.float64),
                    colour=places[label],
                    dash=places[label],
                )
                for label, values in found.items()
            ]
            panels.append(panel(shown, xlabel="rows used by the crowd", ylabel=words, bottom=0.0))
        return Figure(panels=tuple(panels))

    return draw


OWN = Study(
    title=f"plain and learned averaging in the paper's own setting, {ROUNDS} of {ALL_ROUNDS} rounds",
    claim="",
    refuted_by="",
    tuned="given",
    hours=True,
    task=FULL,
    curves=CURVES,
    rows=ByCurve(rows=_rows, metric=ACCURACY, published={}),
    draw=both_figures(CURVES),
    trials=1,
    notes=(
        f"the first {ROUNDS} rounds of a run of {ALL_ROUNDS}, whose rate is constant; the paper's figures are those of "
        "the last round, so none stands beside these",
        "rate, batch and the passes of a round are not in the paper, and were not searched: 0.05, 50 and one",
        "IID: rows are dealt without replacement, as in the paper's figure 2; those of its figure 1 are drawn with it",
        "two shards of sorted rows per device are not the paper's crowd",
    ),
)
