"""Rows of a report: how a measured figure is set beside the paper's, and the rules by which it can fail.

holds    the paper's figure within the stated tolerance, and the claim of the study
beyond   the claim, and a figure better than the paper's by more than the tolerance, where better is possible
trend    the claim, at another level than the paper's
differs  anything else
shown    nothing is claimed of this figure
not run  nobody has run this

A claim is never met by a model that has learnt nothing: whoever always says the commonest label has equal errors
everywhere, so every comparison that equal errors would pass asks `learns` as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdml.simulation import Result
from crowdml.studies.study import Results, Row, Verdict

Floats = npt.NDArray[np.float64]
Better = Literal["less", "more"]

COMMONEST = {
    "activity-changes": ("In Vehicle", 0.6216),
    "activity-slots": ("In Vehicle", 0.525),
    "adult": ("at most 50K", 0.2478),
    "cifar10": ("the same label", 0.9),
    "digits": ("1", 0.8841),
    "fashion-mnist": ("the same label", 0.9),
    "mnist": ("1", 0.8865),
}
"""By dataset: the label that a constant predictor had best say, and its error on the rows that are measured on."""

ACCURACY = "test accuracy"
LEARNT = 0.9
"""A model has learnt something when its error is at most so many times that of the constant predictor: not the mean
over trials alone, which chance may have put there, but the mean and one standard error above it."""


def learns(*results: Result, measure: str = "test_error", at: int = -1) -> bool:
    """Tell whether all of them are better than a constant predictor by a tenth of its error, and that not by chance."""
    return all(
        at_most(result.measured[measure][at], LEARNT * COMMONEST[str(result.task.data.dataset)][1])
        for result in results
    )


def at_most(values: Floats, bar: float) -> bool:
    """Tell whether the mean over trials is not above a bar, nor would be if it were one standard error larger."""
    return float(values.mean()) + standard_error(values) <= bar


def errors(result: Result) -> Floats:
    """Return the test error of every trial at the end."""
    return np.asarray(result.measured["test_error"][-1], np.float64)


def accuracies(result: Result) -> Floats:
    """Return the test accuracy of every trial at the end."""
    return 1 - errors(result)


def gaps(left: Result, right: Result, at: int = -1) -> Floats:
    """Return by how much one test error is above another, trial by trial."""
    return np.asarray(left.measured["test_error"][at] - right.measured["test_error"][at], np.float64)


def constant_rows(results: tuple[Result, ...], measure: str) -> tuple[Row, ...]:
    """Show what a constant predictor errs, for every dataset of a study."""
    names = dict.fromkeys(str(result.task.data.dataset) for result in results)
    metric = "time-averaged error" if measure == "estimated_error" else "test error"
    return tuple(
        shown(f"constant predictor on {name}: always {COMMONEST[name][0]}", metric, COMMONEST[name][1])
        for name in names
    )


def level(
    setting: str,
    metric: str,
    values: Floats,
    paper: float | None,
    *,
    tolerance: float = 0.02,
    claim: bool = True,
    better: Better | None = None,
    claimed: str = "the study's claim",
) -> Row:
    """Set a mean over trials beside the paper's figure; without one it is shown.

    Args:
        setting: What was run.
        metric: What was measured.
        values: One figure for each trial.
        paper: The paper's figure.
        tolerance: How far from it ours may be.
        claim: Whether the claim is met that belongs to the figure; where it is not, no level helps.
        better: Which way is better, where that is possible.
        claimed: The claim in words.
    """
    ours, std = _mean_and_spread(values)
    if paper is None:
        return shown(setting, metric, values)
    verdict: Verdict = "trend"
    if not claim or not math.isfinite(ours):
        verdict = "differs"
    elif abs(ours - paper) <= tolerance:
        verdict = "holds"
    elif (better == "less" and ours < paper) or (better == "more" and ours > paper):
        verdict = "beyond"
    words = f"within {tolerance:g} of the paper's, and {claimed}" + f"; {better} is better" * bool(better)
    return Row(setting=setting, metric=metric, paper=paper, ours=_finite(ours), std=std, verdict=verdict, rule=words)


def as_published(setting: str, result: Result, published: float, tolerance: float, again: float | None = None) -> Row:
    """Set a test accuracy beside one that another system has published; one that is lower by more refutes it.

    Args:
        setting: What was run.
        result: What came of it.
        published: The other system's figure.
        tolerance: How much lower ours may be.
        again: What the same setting gave when such a system was run again; not being lower than that is a trend.
    """
    found = accuracies(result)
    least = published if again is None else min(published, again)
    reached = learns(result) and float(found.mean()) >= least - tolerance
    return level(
        setting,
        ACCURACY,
        found,
        published,
        tolerance=tolerance,
        claim=reached,
        better="more",
        claimed="not lower by more" + ("" if again is None else f" (run again, the other system gave {again:g})"),
    )


def statement(
    setting: str, metric: str, values: Floats | float, holds: bool, rule: str, paper: float | None = None
) -> Row:
    """State a claim of which `rule` says in words when it holds; a figure that is no number never does."""
    ours, std = _mean_and_spread(values)
    verdict: Verdict = "holds" if holds and math.isfinite(ours) else "differs"
    return Row(setting=setting, metric=metric, paper=paper, ours=_finite(ours), std=std, verdict=verdict, rule=rule)


def shown(setting: str, metric: str, values: Floats | float) -> Row:
    """Show a figure of ours that nothing is claimed of; None where it was never reached."""
    ours, std = _mean_and_spread(values)
    return Row(setting=setting, metric=metric, paper=None, ours=_finite(ours), std=std, verdict="shown")


def shown_accuracies(results: Results, *labels: str) -> Iterator[Row]:
    """Show the test accuracy of all curves, or of some, of which nothing is claimed by itself."""
    return (shown(label, "test accuracy", accuracies(results[label])) for label in labels or results)


def not_run(setting: str, metric: str, paper: float | None, why: str) -> Row:
    """Say that nobody has run a setting of the paper's, and why."""
    return Row(setting=setting, metric=metric, paper=paper, ours=None, std=0.0, verdict="not run", rule=why)


def spread(values: Floats) -> float:
    """Return the standard deviation over trials; 0 for a single one, and where some trial never got there."""
    return float(values.std(ddof=1)) if len(values) > 1 and bool(np.isfinite(values).all()) else 0.0


def _mean_and_spread(values: Floats | float) -> tuple[float, float]:
    """Return what stands for one figure per trial; a single number stands for itself."""
    return (float(values.mean()), spread(values)) if isinstance(values, np.ndarray) else (values, 0.0)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean; 0 for a single value."""
    return float(spread(values) / len(values) ** 0.5)
