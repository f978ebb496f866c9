"""One budget for all that is sent: its parts add up to what the ledger charges, and public rows are none of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from crowdml.privacy.accounting import FILTER_NAMES
from crowdml.task.explanation import Explanation, explain
from tests.audit.attacked_tasks import attacked_task

COUNTS = "privacy.statistics-epsilon=1.0"
SETTINGS = {
    "updates": ("crowd-sgd", "gaussian", ()),
    "pure": ("crowd-sgd", "laplace", (COUNTS,)),
    "side by side": ("crowd-sgd", "gaussian", (COUNTS,)),
    "a little": ("crowd-sgd", "gaussian", ("privacy.statistics-epsilon=0.05",)),
    "device": ("crowd-sgd", "gaussian", (COUNTS, "privacy.unit=device")),
    "a bit beside": ("dp-fedavg", "gaussian", ("algorithm.bit-share=0.2",)),
    "steps": ("fedavg", "gaussian", ("algorithm.epochs=1", "privacy.noise-at=steps")),
}


def found(name: str) -> tuple[Explanation, dict[str, float]]:
    recipe, mechanism, changes = SETTINGS[name]
    told = explain(attacked_task(recipe, mechanism=mechanism, changes=changes))
    return told, {part.what: part.share for part in told.budget}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_shares_add_up_and_one_sentence_says_all(name: str) -> None:
    told, shares = found(name)
    assert math.fsum(shares.values()) == pytest.approx(1.0) and all(0 < share <= 1 for share in shares.values())
    (said,) = (note for note in told.notes if note.startswith("one budget of ε = 4 pays for all that is sent"))
    assert all(f"{share:.1%} for {what}" in said for what, share in shares.items())
    assert said.endswith("cost nothing of it")
    assert told.to_json()["budget"] == [{"what": w, "share": pytest.approx(s, abs=1e-6)} for w, s in shares.items()]


@pytest.mark.parametrize("name", ["pure", "side by side", "a little", "device"])
def test_counts_have_the_share_by_which_the_ledger_charges_more(name: str) -> None:
    """Worked out from what a ledger charges for a plan without counts."""
    recipe, mechanism, changes = SETTINGS[name]
    plan = attacked_task(recipe, mechanism=mechanism, changes=changes).calibrated
    alone = replace(plan.last, counts=None).cost(plan.terms.uses, plan.terms.changing)
    assert alone is not None
    kind, delta = plan.terms.limit.kind, plan.terms.limit.delta
    both = plan.event.times(plan.terms.uses)
    assert both.epsilon(kind, delta) == pytest.approx(4.0, rel=0.01)
    without = alone.event()
    share = without.rho / both.rho if kind == "rdp" else without.epsilon(kind, delta) / both.epsilon(kind, delta)
    told, shares = found(name)
    assert shares["updates"] == pytest.approx(share) and shares["updates"] < 1
    assert FILTER_NAMES[kind] == told.enforced_by
    if kind == "pure":
        assert shares["counts of errors and labels"] == pytest.approx(0.25, rel=0.02)


def test_a_learnt_clip_pays_by_its_part_of_the_length() -> None:
    _, shares = found("a bit beside")
    assert shares == {"updates": pytest.approx(0.8), "telling whether a change was clipped": pytest.approx(0.2)}


def test_public_rows_and_validation_cost_nothing() -> None:
    learned = ("algorithm.averaging=learned", "data.public=500", "data.validation=100")
    told = [explain(attacked_task("fedavg", changes=changes)) for changes in ((), learned)]
    assert told[0].budget == told[1].budget and told[0].total == told[1].total
