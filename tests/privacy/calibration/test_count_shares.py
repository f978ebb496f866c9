"""ε_g, ε_e and ε_y of Crowd-ML 2015, each by itself: gradient, error count, label counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crowdml.core import BadInput
from crowdml.privacy import Plan
from crowdml.task import parse
from tests.privacy.calibration.test_refusals import PAPER, TASK

COUNTS = "privacy.statistics-epsilon=2.0"


def plan(text: str, *changes: str) -> Plan:
    return parse(text, changes=[COUNTS, *changes]).calibrated


def test_each_of_the_three_gets_its_own_epsilon() -> None:
    """ε = 8 over two releases: 2 for counts, a quarter of which for labels; the rest is the gradient's."""
    counts = plan(TASK, "privacy.label-share=0.25").last.counts
    assert counts is not None
    errors, labels = 1 / (1.5 / 2), 2 / (0.5 / 2)  # label counts change by 2 in L1
    assert 0 <= counts.errors - errors <= 1 / 16 and 0 <= counts.spread - labels <= 1 / 16, "rounded up"


def test_the_total_is_kept_whatever_the_shares() -> None:
    for share in (0.1, 0.5, 0.9):
        made = plan(TASK, f"privacy.label-share={share}")
        total = made.figure(made.terms.uses)
        assert total is not None and 7.9 < total.epsilon <= 8.0


def test_half_each_is_what_it_always_was() -> None:
    assert plan(TASK) == plan(TASK, "privacy.label-share=0.5")


def test_an_owner_with_another_epsilon_keeps_the_shares() -> None:
    made = plan(TASK, "privacy.label-share=0.2", "privacy.owner-range=[4.0, 16.0]")
    chosen, counts = made.for_owner(16.0).last.counts, made.last.counts
    assert chosen is not None and counts is not None
    assert chosen.errors == pytest.approx(counts.errors / 2, rel=0.05)
    assert chosen.spread == pytest.approx(counts.spread / 2, rel=0.05)


def test_paper_mode_has_the_papers_scales() -> None:
    """Equations (11) and (12): 2/ε_e on errors, 2/ε_y on each of ten label counts, where C·ε_y is their part."""
    counts = plan(PAPER, "privacy.label-share=0.25").last.counts
    assert counts is not None
    assert replace(counts, classes=2).errors == pytest.approx(2 / 1.5) and counts.spread == pytest.approx(2 / 0.05)


def test_under_secure_aggregation_counts_share_one_noise() -> None:
    changes = (
        "algorithm={ kind = 'fedsgd', per-round = 10, statistics = true }",
        "secure-aggregation.enabled=true",
        "privacy.mechanism=gaussian",
        "privacy.delta=1e-5",
        "privacy.clip=1.0",
    )
    plan(TASK, *changes)
    with pytest.raises(BadInput, match="one vector with noise of one size") as refused:
        plan(TASK, *changes, "privacy.label-share=0.25")
    assert refused.value.where.endswith("privacy.label-share")
