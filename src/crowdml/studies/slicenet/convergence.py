"""SliceNet, figures 3 to 6: how fast groups learn, for the settings of tables I to IV.

A pass is an epoch of the paper: every device has been dominator once. A setting has converged at the first pass from
which on its error stays within a tenth of the last one. That says something where curves have become flat long before
the last pass, so there are three times the passes of the tables, and a curve that still falls in the last quarter of
them refutes any claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from crowdml.simulation import Result
from crowdml.studies.comparisons import learns, not_run, shown, statement
from crowdml.studies.slicenet.training_tables import (
    BEST,
    NOTES,
    OF_SIX,
    OF_TWELVE,
    OMEGAS,
    TAUS,
    THETAS,
    group_sizes,
    ten_groups,
)
from crowdml.studies.study import TASKS, Curve, Results, Row, Study

NEAR = 1.1
"""An error is near the last one that is at most so many times it."""
PASSES = 24
SETTLED = 18
"""Passes, and the last of them at which a curve may converge so that it has become flat."""
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
    alike = width <= ALIKE and max(compared) <= SETTLED and learns(*results.values())
    rule = f"at most {ALIKE}, all flat after {SETTLED} of {PASSES} passes, and all learn"
    yield from _shown(found)
    yield statement("slowest minus quickest setting", METRIC, width, alike, rule)


def _near_the_number_of_groups(results: Results) -> Iterator[Row]:
    """Compare a window of as many uploads as there are groups with the others."""
    found = {name: passes_needed(result) for name, result in results.items()}
    later = found[BEST] - float(np.mean([count for name, count in found.items() if name != BEST]))
    slower = later > 0 and max(found.values()) <= SETTLED and learns(*results.values())
    rule = f"above 0, all flat after {SETTLED} of {PASSES} passes, and all learn"
    yield from _shown(found)
    yield statement(f"{BEST} minus the mean of the others", METRIC, later, slower, rule)


def _shown(found: Mapping[str, float]) -> Iterator[Row]:
    return (shown(name, METRIC, count) for name, count in found.items())


def _figure(
    of: str,
    small: tuple[Curve, ...],
    whole: tuple[Curve, ...],
    rows: Callable[[Results], Iterator[Row]],
    *,
    claim: str,
    refuted_by: str,
) -> Study:
    """Make a figure: small by default, and with `--full` the net and the crowd of the tables."""
    return Study(
        title=f"convergence for {of}",
        claim=claim,
        refuted_by=refuted_by,
        tuned="held back",
        searched_in="slicenet/table1",
        stands_in="reduced setting",
        task=TASKS / "slicenet-small.toml",
        curves=small,
        full=TASKS / "slicenet-mlp.toml",
        full_curves=whole,
        rows=rows,
        trials=3,
        missing=(
            not_run(
                "the net and the crowd of the tables", METRIC, None, "hours on a processor for each figure: --full"
            ),
            not_run("cnn on CIFAR-10", METRIC, None, "days on a processor"),
        ),
        notes=(
            "a smaller net (784-32-16-10) and crowd (60 devices of 100 digits) than the paper's; ten groups have six "
            "devices each",
            "rate and decay are those of slicenet/table1, searched for its net and groups of ten on rows held back, "
            "and not again; passes and the small net were set once",
            "with the rate falling in every pass all curves become flat sooner or later: what is compared is when",
            *NOTES,
        ),
    )


_SAME = "the number of passes until the error has converged hardly depends on"
_REFUTED = (
    f"settings whose passes until convergence differ by more than {ALIKE}, or a curve that still falls at the end"
)
_EVERY = (f"crowd.passes={PASSES}", f"crowd.curve={PASSES}")


def _sharing(letter: str, key: str, values: Sequence[float]) -> tuple[tuple[Curve, ...], tuple[Curve, ...]]:
    """Return curves for a setting of sharing, in small and in full."""
    return ten_groups(letter, key, values, OF_SIX), ten_groups(letter, key, values, OF_TWELVE, *_EVERY)


FIG3 = _figure(
    "groups of n devices",
    group_sizes(),
    group_sizes(*_EVERY),
    _alike,
    claim=f"{_SAME} the number of pieces",
    refuted_by=_REFUTED,
)
FIG4 = _figure(
    "the share θ of weights that is uploaded",
    *_sharing("θ", "theta", THETAS),
    _alike,
    claim=f"{_SAME} θ",
    refuted_by=_REFUTED,
)
FIG5 = _figure(
    "the threshold τ of taking over",
    *_sharing("τ", "tau", TAUS),
    lambda results: _alike(results, but=("τ = 1",)),
    claim=f"{_SAME} τ, as long as groups share at all",
    refuted_by=_REFUTED,
)
FIG6 = _figure(
    "the window ω",
    *_sharing("ω", "omega", OMEGAS),
    _near_the_number_of_groups,
    claim="a window of as many uploads as there are groups converges later than the others",
    refuted_by=f"{BEST} converging no later than the others do on average, or a curve that still falls at the end",
)
