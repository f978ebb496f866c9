"""Owners with different ε: half of the devices at 1, half at 8, each enforced by its own ledger.

The paper left both open: privacy together with learned averaging, and budgets of one's own. A smaller rate is another
remedy against noise, so every way to average has its own rate, found on rows held back. Beside it stands what happens
at the rate that is best for a crowd in which everybody takes ε = 8: an author sets the rate before owners choose. The
number of rounds, over which ε is spread, is the best one for equal weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from crowdml.studies.comparisons import accuracies, shown_accuracies
from crowdml.studies.figure import Figure
from crowdml.studies.figure_makers import bars
from crowdml.studies.odpfl.averages import LEARNED, gain_row
from crowdml.studies.study import TASKS, Curve, Results, Row, Study, Unstated, curve

COMMON = (
    'model={ kind = "softmax" }',
    "privacy.mode=sound",
    "privacy.mechanism=gaussian",
    "privacy.clip=1.0",
    "privacy.epsilon=8.0",
    "privacy.delta=1e-5",
    "privacy.owner-range=[1.0, 8.0]",
    "algorithm.local-batch=57",
    "crowd.rows=5700",
)
HALVES = (*COMMON, "crowd.owner-epsilon={ values = [1.0, 8.0] }")
ROUNDS = {
    f"{rounds} rounds": (f"privacy.max-uses={rounds}", f"crowd.passes={rounds}") for rounds in (5, 10, 20, 40, 80)
}
SHARDS = 'crowd.partition={ kind = "shards" }'
RATE = "algorithm.rate.c"
RATES = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
WAYS = {
    "equal": ("algorithm.averaging=equal",),
    "inverse variance": ("algorithm.averaging=inverse-variance",),
    "learned": (LEARNED,),
    "fine-tuned": ("algorithm.averaging=equal", "algorithm.finetune={ steps = 10 }"),
}
ALL = "all at ε = 8: equal"
OWN, AUTHORS, APART = "ε 1 and 8, own rate", "ε 1 and 8, rate of ε = 8", "ε 1 and 8, shards"
PUBLIC = "public rows only"
AUTHORS_RATE = 3.0
"""Best on rows held back where all owners take ε = 8."""
CHOSEN: dict[str, dict[str, float]] = {
    OWN: {"equal": 0.5, "inverse variance": 2.0, "learned": 2.0, "fine-tuned": 0.5},
    APART: {"equal": 0.25, "inverse variance": 0.5, "learned": 0.25, "fine-tuned": 0.5},
}
"""Rates by `crowdml reproduce odpfl/mixed --search --trials 6`."""


def _searched(label: str, chosen: float, *changes: str) -> Curve:
    return curve(label, *changes, chosen={RATE: chosen}, grid={RATE: RATES})


def _curves() -> Iterator[Curve]:
    yield _searched(ALL, AUTHORS_RATE, *COMMON, *WAYS["equal"])
    for (crowd, more), way in itertools.product({OWN: (), APART: (SHARDS,)}.items(), WAYS):
        yield _searched(f"{crowd}: {way}", CHOSEN[crowd][way], *HALVES, *more, *WAYS[way])
    for way in ("equal", "inverse variance", "learned"):
        yield curve(f"{AUTHORS}: {way}", *HALVES, *WAYS[way], f"{RATE}={AUTHORS_RATE}")
    alone = ("algorithm.finetune={ steps = 30 }", "privacy={ mode = 'none' }", f"{RATE}=1e-9")
    yield curve(PUBLIC, *COMMON, *WAYS["equal"], *alone)


def _rows(results: Results) -> Iterator[Row]:
    yield from shown_accuracies(results)
    for crowd, way in itertools.product((OWN, AUTHORS), ("learned", "inverse variance")):
        yield gain_row(results, f"{crowd}: {way}", f"{crowd}: equal", 0.04)


def _error_of_equal(results: Results) -> tuple[float, str]:
    return results[f"{OWN}: equal"].validation_error, ""


def _draw(results: Results) -> Figure:
    """Draw the accuracy of every way, by crowd and rate."""
    points = {label: 100 * accuracies(result) for label, result in results.items()}
    words = {
        OWN: "each at its own\nbest rate",
        AUTHORS: "at the best rate\nfor all at ε = 8",
        APART: "two shards\neach",
    }
    groups = {
        told: {way: points[f"{crowd}: {way}"] for way in WAYS if f"{crowd}: {way}" in points}
        for crowd, told in words.items()
    }
    levels = [(float(points[ALL].mean()), "equal, all at ε = 8"), (float(points[PUBLIC].mean()), PUBLIC)]
    return bars(groups, "test accuracy, %", levels)


MIXED = Study(
    title="half of the owners at ε = 1, half at ε = 8, by averaging",
    claim="(left open by the paper) weights that follow from check-ins or public rows gain four points over equal ones",
    refuted_by="a gain below 0.04",
    tuned="held back",
    task=TASKS / "fashion.toml",
    curves=tuple(_curves()),
    rows=_rows,
    trials=20,
    draw=_draw,
    unstated=Unstated(
        candidates=ROUNDS,
        used="40 rounds",
        curves=(f"{OWN}: equal",),
        criterion="validation error of equal weights",
        score=_error_of_equal,
    ),
    notes=(
        "not a figure of the paper, which left privacy with learned averaging and budgets of one's own open",
        "rates were found on rows held back, for every way by itself; ε covers all releases of a device",
        "inverse variance needs neither public rows nor the owners' ε: check-ins tell by themselves how noisy they are",
    ),
)
