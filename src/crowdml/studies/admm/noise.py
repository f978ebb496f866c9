"""Async ADMM, figure 4: the paper's noise to the letter, its claim for one iteration, and what 20 of them add up to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from crowdml.privacy.promise import classical_scale, gaussian_epsilon
from crowdml.simulation import Result
from crowdml.studies.admm.common import CENTRAL, CENTRALISED, SPLITS, TASK, TUNED, accuracies, behind, gap, shown_level
from crowdml.studies.admm.drawing import draw_levels
from crowdml.studies.comparisons import learns, level, shown
from crowdml.studies.contract import Curve, Row, Study

VERSIONS, DELTA = 20, 1e-3
ALMOST = 0.01
"""How near to the centralised fit is almost the same."""
RHO = {0.01: 20.0, 0.1: 5.0, 1.0: 1.0}
"""ρ by ε: the outcome of a search on rows held back."""
LOCAL = "local, 100 devices"
LAST, MEAN = "last version", "mean of the last 10"


def label(epsilon: float, which: str) -> str:
    """Name one curve."""
    return f"ε = {epsilon:g} per iteration, {which}"


def composed(epsilon: float, delta: float, versions: int = VERSIONS) -> float:
    """Return what so many iterations of the paper's claim add up to, if its lemma held in all of them.

    >>> round(composed(0.1, 1e-3), 3), round(composed(0.1, 1e-5), 3)
    (0.242, 0.41)
    """
    return gaussian_epsilon(versions**0.5 / classical_scale(epsilon, DELTA), delta)


def _curve(epsilon: float, rho: float, which: str) -> Curve:
    average = (f"algorithm.average-from={VERSIONS // 2 + 1}",) if which == MEAN else ()
    return Curve(
        label=label(epsilon, which),
        changes=(
            'privacy={ mode = "paper", mechanism = "gaussian", epsilon = 0.1, delta = 1e-3 }',
            "algorithm.barrier=100",
            "crowd.curve=1",
            *average,
        ),
        chosen={"privacy.epsilon": epsilon, "algorithm.rho": rho, "algorithm.beta": 0.1},
        grid={"privacy.epsilon": (epsilon,), "algorithm.rho": (rho / 3, rho, rho * 3), "algorithm.beta": (0.1,)},
    )


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = [shown_level(results, CENTRALISED), shown_level(results, LOCAL)]
    for which in (LAST, MEAN):
        for epsilon in RHO:
            rows += [shown_level(results, label(epsilon, which)), gap(results, label(epsilon, which))]
    means = [float(accuracies(results[label(epsilon, LAST)]).mean()) for epsilon in RHO]
    rises = all(less < more for less, more in itertools.pairwise(means))
    at = results[label(0.1, LAST)]
    ordered = rises and learns(at) and means[1] > float(accuracies(results[LOCAL]).mean())
    missing = behind(results, label(0.1, LAST))
    rows.append(
        level(
            "last version at ε = 0.1 per iteration",
            "behind centralised",
            missing,
            0.0,
            tolerance=ALMOST,
            claim=ordered,
            claimed="accuracy rises with ε, above that of local fits",
        )
    )
    for epsilon in RHO:
        for delta in (DELTA, 1e-5):
            setting = f"ε = {epsilon:g} and δ = 0.001 in each of {VERSIONS} iterations, added up at δ = {delta:g}"
            rows.append(shown(setting, "ε, if lemma 1 held throughout", composed(epsilon, delta)))
    return tuple(rows)


def _draw(results: Mapping[str, Result], path: Path, title: str) -> None:
    lines = {
        which: [(epsilon, accuracies(results[label(epsilon, which)])) for epsilon in RHO] for which in (LAST, MEAN)
    }
    levels = {name: accuracies(results[name]) for name in (CENTRALISED, LOCAL)}
    draw_levels(lines, levels, path, title, "ε that the paper claims for one iteration (δ = 0.001)")


FIG4 = Study(
    title="ADMM with the paper's noise, by the ε of one iteration",
    claim="at ε = 0.1 per iteration accuracy is almost that of the centralised fit",
    refuted_by="accuracy that does not rise with ε, or is below that of local fits; more than "
    f"{ALMOST:g} behind centralised it is a trend only",
    tuned="held back",
    task=TASK,
    curves=(
        CENTRAL,
        Curve(
            label=LOCAL,
            changes=('algorithm={ kind = "local-fit" }', "stop={}", "crowd.passes=1", "crowd.curve=1"),
            chosen={"algorithm.beta": 0.1},
            grid={},
        ),
        *(_curve(epsilon, rho, which) for which in (LAST, MEAN) for epsilon, rho in RHO.items()),
    ),
    compare=_compare,
    trials=SPLITS,
    notes=(
        TUNED,
        "no ε is proven for any of these curves beyond the first iteration: lemma 1 is about a fixed dual, and later "
        "duals depend on the rows",
        "δ = 0.001 is no promise to 30,000 samples; the mean of the last versions is made of what is public",
        "a trial is a split of all complete rows; the paper has 100 trials, of which it shows the mean",
    ),
    draw=_draw,
)
