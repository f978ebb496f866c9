"""SliceNet's convolutional net on CIFAR-10 to its end: the columns of tables I to IV for it, curve by curve.

A pass takes minutes of a processor, so each curve can be run by itself and interrupted: `crowdml reproduce
slicenet/cnn-all --curve LABEL --resume --record results`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crowdml.simulation import Result
from crowdml.studies.comparisons import learns, level, shown
from crowdml.studies.slicenet.first_passes import ALL_PASSES, CNN, rate_by
from crowdml.studies.slicenet.training_tables import (
    ALONE,
    CENTRAL,
    METRIC,
    NOT_SHARED,
    NOTES,
    OF_TWELVE,
    OMEGAS,
    POINTS,
    TABLE1_CNN,
    TABLE3_CNN,
    TAUS,
    THETAS,
    group_sizes,
    percent,
    ten_groups,
)
from crowdml.studies.study import ByCurve, Row

MEASURED = "crowd.curve=6"
PUBLISHED = TABLE1_CNN | TABLE3_CNN
BASELINES = (ALONE, CENTRAL, NOT_SHARED)
"""Doing better than the paper's says nothing for groups there, or for sharing."""


def _rows(label: str, result: Result) -> Iterator[Row]:
    found, paper = percent(result), PUBLISHED.get(label)
    if paper is None:
        yield shown(label, METRIC, found)
        return
    yield level(
        label,
        METRIC,
        found,
        paper,
        tolerance=POINTS,
        claim=learns(result) and float(found.mean()) <= paper + POINTS,
        better=None if label in BASELINES else "less",
        claimed="not above it by more, and it learns",
    )


ALL = replace(
    CNN,
    title=f"error for groups, convolutional net, all {ALL_PASSES} passes",
    claim="groups err no more than the paper's, and learn",
    refuted_by=f"an error more than {POINTS:g} points above the paper's, or a net that learns nothing",
    curves=(
        *group_sizes(MEASURED),
        *ten_groups("θ", "theta", THETAS, OF_TWELVE, MEASURED),
        *ten_groups("τ", "tau", TAUS, OF_TWELVE, MEASURED),
        *ten_groups("ω", "omega", OMEGAS, OF_TWELVE, MEASURED),
    ),
    rows=ByCurve(rows=_rows, metric=METRIC, published=PUBLISHED),
    unstated=rate_by(CENTRAL),
    notes=(
        *NOTES,
        f"{ALL_PASSES} passes: the paper does not state how long it trains; whether errors fall from setting to "
        "setting says slicenet/table1 --full",
        CNN.notes[-1],
        "n is for table I; θ, τ and ω are for tables II, III and IV, in ten groups of twelve; the paper's figures of "
        "tables II and IV are missing from the text we have, so ours are shown; θ = 0.5 and ω = 10 are one setting",
    ),
)
"""Its rate is that of the first passes, searched on rows held back."""
