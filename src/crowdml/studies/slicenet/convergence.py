"""SliceNet, figures 3 to 6: how fast groups learn, for the settings of tables I to IV.

A pass is an epoch of the paper: every device has been dominator once. A setting has converged at the first pass whose
error is within a tenth of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import learns, shown, statement
from crowdml.studies.slicenet.training_tables import BEST, NOTES, TABLE_1, TABLE_2, TABLE_3, TABLE_4
from crowdml.studies.study import Results, Row, Study

NEAR = 1.1
"""An error is near the last one that is at most so many times it."""
ALIKE = 2
"""Passes by which settings that converge alike may differ."""
METRIC = "passes until converged"


def passes_needed(result: Result) -> float:
    """Return the first pass from which on the mean error stays near that of the last, as a share of all times passes.

    >>> from types import SimpleNamespace
    >>> errors = np.array([[0.5], [0.2], [0.105], [0.1]])
    >>> passes_needed(SimpleNamespace(measured={"test_error": errors}))
    3.0
    """
    means = result.measured["test_error"].mean(axis=1)
    away = np.flatnonzero(means > NEAR * means[-1])
    return float(away[-1] + 2 if len(away) else 1)


def _alike(results: Results, but: Sequence[str] = ()) -> Iterator[Row]:
    """Compare the slowest setting with the quickest."""
    found = {name: passes_needed(result) for name, result in results.items()}
    compared = [count for name, count in found.items() if name not in but]
    width = max(compared) - min(compared)
    alike = width <= ALIKE and learns(*results.values())
    rule = f"at most {ALIKE}, and all learn"
    yield from _shown(found)
    yield statement("slowest minus quickest setting", METRIC, width, alike, rule)


def _near_the_number_of_groups(results: Results) -> Iterator[Row]:
    """Compare a window of as many uploads as there are groups with the others."""
    found = {name: passes_needed(result) for name, result in results.items()}
    later = found[BEST] - float(np.mean([count for name, count in found.items() if name != BEST]))
    slower = later > 0 and learns(*results.values())
    yield from _shown(found)
    yield statement(f"{BEST} minus the mean of the others", METRIC, later, slower, "above 0, and all learn")


def _shown(found: Mapping[str, float]) -> Iterator[Row]:
    return (shown(name, METRIC, count) for name, count in found.items())


def _by_pass(study: Study, of: str, rows: Callable[[Results], Iterator[Row]], *, claim: str, refuted_by: str) -> Study:
    """Turn a table into its figure: the same runs, judged by when they have converged."""
    figure = replace(study, title=f"convergence for {of}", claim=claim, refuted_by=refuted_by, rows=rows)
    return replace(figure, draw=None, missing=(), unstated=None, notes=NOTES)


_SAME = "the number of passes until the error has converged hardly depends on"
_REFUTED = f"settings whose passes until convergence differ by more than {ALIKE}"

FIG3 = _by_pass(TABLE_1, "groups of n devices", _alike, claim=f"{_SAME} the number of pieces", refuted_by=_REFUTED)
FIG4 = _by_pass(TABLE_2, "the share θ of weights that is uploaded", _alike, claim=f"{_SAME} θ", refuted_by=_REFUTED)
FIG5 = _by_pass(
    TABLE_3,
    "the threshold τ of taking over",
    lambda results: _alike(results, but=("τ = 1",)),
    claim=f"{_SAME} τ, as long as groups share at all",
    refuted_by=_REFUTED,
)
FIG6 = _by_pass(
    TABLE_4,
    "the window ω",
    _near_the_number_of_groups,
    claim="a window of as many uploads as there are groups converges later than the others",
    refuted_by=f"{BEST} converging no later than the others do on average",
)
