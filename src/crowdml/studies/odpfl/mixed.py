"""Owners with different ε: half of the devices at 1, half at 8, each enforced by its own ledger.

The paper left both open: privacy together with learned averaging, and budgets of one's own. The rate is the best one
for a crowd in which everybody takes ε = 8, as a task's author would set it; then half of the owners choose 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from crowdml.simulation import Result
from crowdml.studies.comparisons import accuracy
from crowdml.studies.contract import Curve, Row, Study
from crowdml.studies.odpfl.averages import LEARNED, TASK, curve, gain_row

COMMON = (
    'model={ kind = "softmax" }',
    'privacy={ mechanism = "gaussian", clip = 1.0, epsilon = 8.0, delta = 1e-5, max-uses = 10 }',
    "privacy.owner-range=[1.0, 8.0]",
    "algorithm.local-batch=57",
    "algorithm.rate.c=2.0",
    "crowd.rows=5700",
    "crowd.passes=10",
)
HALVES = (*COMMON, "crowd.owner-epsilon={ values = [1.0, 8.0] }")
SHARDS = 'crowd.partition={ kind = "shards" }'


def _ways(name: str, *common: str) -> tuple[Curve, ...]:
    return (
        curve(f"{name}: equal", *common, "algorithm.averaging=equal"),
        curve(f"{name}: inverse variance", *common, "algorithm.averaging=inverse-variance"),
        curve(f"{name}: learned", *common, LEARNED),
        curve(f"{name}: fine-tuned", *common, "algorithm.averaging=equal", "algorithm.finetune={ steps = 10 }"),
    )


def _compare(results: Mapping[str, Result]) -> tuple[Row, ...]:
    rows = [accuracy(label, result, None) for label, result in results.items()]
    return (*rows, gain_row(results, "ε 1 and 8: learned", "ε 1 and 8: equal", 0.04))


MIXED = Study(
    title="half of the owners at ε = 1, half at ε = 8, by averaging; IID and two shards per device",
    task=TASK,
    curves=(
        curve("all at ε = 8: equal", *COMMON, "algorithm.averaging=equal"),
        *_ways("ε 1 and 8", *HALVES),
        *_ways("ε 1 and 8, shards", *HALVES, SHARDS),
        curve(
            "public rows only",
            *COMMON,
            "algorithm.averaging=equal",
            "algorithm.finetune={ steps = 30 }",
            "privacy={ mode = 'none' }",
            "algorithm.rate.c=1e-9",
        ),
    ),
    compare=_compare,
    trials=5,
    notes=(
        "not a figure of the paper, which left privacy with learned averaging and budgets of one's own open",
        "the rate is the best for a crowd that is all at ε = 8",
        "inverse variance needs neither public rows nor the owners' ε: check-ins tell by themselves how noisy they are",
    ),
)
