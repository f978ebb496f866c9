"""SliceNet's convolutional net on CIFAR-10, as far as it was run: the first passes of the 30 that table I has here.

A pass takes minutes of a processor. The rate of a pass follows from its number alone, so these are the first passes of
the whole run; nothing that they reach is set beside what the paper reports of the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crowdml.simulation import Result
from crowdml.studies.comparisons import shown
from crowdml.studies.slicenet.training_tables import ALONE, CENTRAL, METRIC, NOTES, group_sizes, percent
from crowdml.studies.study import TASKS, ByCurve, Row, Study, Unstated, searched_rate

PASSES, ALL_PASSES = 4, 30
"""What a curve has, and what the full setting of table I has."""
RATES = (0.05, 0.1, 0.2)


def _name(label: str) -> str:
    return f"{label}, after {PASSES} of {ALL_PASSES} passes"


def _rows(label: str, result: Result) -> Iterator[Row]:
    yield shown(label, METRIC, percent(result))


def rate_by(label: str) -> Unstated:
    """Choose the rate by one pass of a curve, on rows held back."""
    found = searched_rate(label, RATES, given=0.05, used=0.1, key="algorithm.rate")
    return replace(found, shorter=("crowd.passes=1",))


# Devices alone are left out: to measure 120 nets takes longer than to train them.
CURVES = tuple(
    replace(each, label=_name(each.label), changes=(*each.changes, f"crowd.passes={PASSES}", "crowd.curve=2"))
    for each in group_sizes()
    if each.label != ALONE
)
CNN = Study(
    title=f"error for groups of n devices, convolutional net, {PASSES} of {ALL_PASSES} passes",
    claim="",
    refuted_by="",
    tuned="held back",
    hours=True,
    task=TASKS / "slicenet-cnn.toml",
    curves=CURVES,
    rows=ByCurve(rows=_rows, metric=METRIC, published={}),
    trials=1,
    unstated=rate_by(_name(CENTRAL)),
    notes=(
        *NOTES,
        f"the first {PASSES} passes of a run of {ALL_PASSES}; the paper's figures are those of the end of training, "
        "whose length it does not state, so none stands beside these",
        "the rate has the least error of C-SGD after one pass, on rows held back (crowdml reproduce "
        "slicenet/cnn --search --trials 1), for all settings alike: 0.599 at 0.1, 0.624 at 0.2 and 0.649 at 0.05; "
        "decay and batch were not searched: 0.95 and 50",
    ),
)
