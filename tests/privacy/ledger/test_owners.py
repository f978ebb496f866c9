"""Owners choose their own ε: the noise follows, everything that others see keeps its shape."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.privacy import Plan
from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.privacy.ledger.ledger_chain import LedgerChain
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.task import Task, parse

TASK = """
crowdml = 1
name = "owners"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 70
rate = { kind = "inverse-sqrt", c = 10.0 }
[privacy]
mechanism = "gaussian"
clip = 1.0
epsilon = 30.0
delta = 1e-5
max-uses = 3
statistics-epsilon = 3.0
owner-range = [2.0, 300.0]
[crowd]
devices = 20
passes = 3
curve = 2
"""


def task(*changes: str) -> Task:
    return parse(TASK, changes=changes)


def plan(*changes: str) -> Plan:
    return task(*changes).calibrated


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [2.0, 7.5, 30.0, 300.0])
def test_a_choice_changes_the_noise_and_nothing_else(mechanism: str, epsilon: float) -> None:
    common = plan(f"privacy.mechanism={mechanism}")
    chosen = common.for_owner(epsilon)
    assert isinstance(common.last, OnGrid) and isinstance(chosen.last, OnGrid)
    assert chosen.last.mechanism.grid == common.last.mechanism.grid
    assert chosen.last.mechanism.law == common.last.mechanism.law
    assert dataclasses.replace(chosen.terms, filter=common.terms.filter) == common.terms
    assert chosen.terms.limit.epsilon == epsilon and chosen.terms.limit.delta == 1e-5
    spent = chosen.event.times(chosen.terms.uses).promise(1e-5).epsilon
    assert 0.9 * epsilon < spent <= epsilon * (1 + 1e-9)
    # It is the plan that a task with this ε would have, counts included.
    direct = plan(
        f"privacy.mechanism={mechanism}", f"privacy.epsilon={epsilon}", f"privacy.statistics-epsilon={epsilon / 10}"
    )
    assert chosen.scales == pytest.approx(direct.scales)
    assert chosen.last.counts is not None and chosen.last.counts.errors == chosen.scales["errors_noise"]


def test_who_chooses_nothing_has_the_plan_of_the_task() -> None:
    assert plan().for_owner(30.0) == plan()


@pytest.mark.parametrize("epsilon", [1.99, 300.1, -1.0])
def test_a_choice_outside_of_the_range_is_refused(epsilon: float) -> None:
    with pytest.raises(BadInput, match="not between 2 and 300"):
        plan().for_owner(epsilon)


def test_without_a_range_there_is_no_choice() -> None:
    fixed = parse(TASK.replace("owner-range = [2.0, 300.0]\n", ""))
    made = fixed.calibrated
    assert made.for_owner(30.0) == made
    with pytest.raises(BadInput, match="not between 30 and 30"):
        made.for_owner(29.0)
    nothing = plan("privacy.mode=none")
    with pytest.raises(BadInput, match="no ε to choose"):
        nothing.for_owner(3.0)


def test_a_ledger_takes_the_terms_of_the_choice() -> None:
    terms = [AcceptedTerms.of(made) for made in (plan().for_owner(2.0), plan())]
    for accepted in terms:
        chain = LedgerChain()
        chain.append(chain.accept("owners", "hash", accepted))
        assert chain.agrees("owners", "hash", accepted)
    assert terms[0].filter.epsilon == 2.0 and terms[0].event.rho < terms[1].event.rho / 50


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        (["privacy.owner-range=[2.0, 2000.0]"], "privacy.owner-range", "promises nothing"),
        (["privacy.owner-range=[1e-7, 30.0]"], "privacy.statistics-epsilon", "32 bits"),
        (["crowd.owner-epsilon={ values = [1.0] }"], "crowd.owner-epsilon", "not between"),
        (["crowd.owner-epsilon={ values = [3.0] }", "privacy.mode=none"], "crowd.owner-epsilon", "no ε to choose"),
        (["crowd.owner-epsilon={ values = [3.0, 4.0], shares = [1.0] }"], "crowd.owner-epsilon", "1 shares for 2"),
        (["crowd.owner-epsilon={ values = [3.0, 4.0], shares = [0.5, 0.4] }"], "crowd.owner-epsilon", "add up to 0.9"),
        (["crowd.owner-epsilon={ values = [3.0, 4.0], shares = [0.99, 0.01] }"], "crowd.owner-epsilon", "none of 20"),
    ],
)
def test_refusals(changes: list[str], where: str, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        task(*changes)
    assert where in caught.value.where and what in caught.value.what


def test_devices_are_split_as_the_shares_say() -> None:
    chosen = task("crowd.owner-epsilon={ values = [2.0, 10.0, 300.0], shares = [0.3, 0.33, 0.37] }").crowd.owner_epsilon
    assert chosen.counts(10) == [3, 3, 4] and sum(chosen.counts(1001)) == 1001
    assert task("crowd.owner-epsilon={ values = [2.0, 10.0, 300.0] }").crowd.owner_epsilon.counts(20) == [7, 6, 7]


def simulated(driver: Any, *changes: str) -> Any:
    return driver(task(*changes), trials=2, seed=1)


def test_a_mixed_crowd_lies_between_its_parts_in_both_drivers() -> None:
    """Accuracy over 2 trials (s.d. near 0.01 each): all at ε = 2 learn least, all at ε = 300 most."""
    from crowdml.simulation import simulate
    from crowdml.simulation.stepwise import simulate_stepwise

    mixed = "crowd.owner-epsilon={ values = [2.0, 300.0], shares = [0.5, 0.5] }"
    alone = [simulated(simulate, f"crowd.owner-epsilon={{ values = [{epsilon}] }}") for epsilon in (2.0, 300.0)]
    found = [simulated(driver, mixed) for driver in (simulate, simulate_stepwise)]
    assert alone[0].test_error > found[0].test_error + 0.05 > alone[1].test_error + 0.1
    assert abs(found[0].test_error - found[1].test_error) < 0.12
    # A whole crowd that chooses another ε is the crowd of a task with that ε, up to the counts' share.
    direct = simulated(simulate, "privacy.epsilon=2.0", "privacy.statistics-epsilon=0.2")
    assert direct.measured["test_error"] == pytest.approx(alone[0].measured["test_error"])
    assert direct.measured["estimated_error"] == pytest.approx(alone[0].measured["estimated_error"])
    _told_by_group(found[0].privacy)
    assert found[0].privacy == found[1].privacy


def _told_by_group(privacy: dict[str, Any]) -> None:
    groups = privacy["owners"]
    assert [(group["epsilon"], group["devices"]) for group in groups] == [(2.0, 10), (300.0, 10)]
    for group in groups:
        assert 0.9 * group["epsilon"] < group["sample"]["epsilon"] <= group["epsilon"]
        assert group["device"]["epsilon"] > group["sample"]["epsilon"]
    assert groups[0]["noise"] > 5 * groups[1]["noise"]
    assert privacy["sample"] == groups[1]["sample"], "in all it is what the least protected have"


def test_a_result_says_it_in_words() -> None:
    from crowdml.cli.simulate import privacy_lines
    from crowdml.simulation import accounting
    from crowdml.simulation.prepare import prepare
    from crowdml.simulation.run import make_timelines

    of = task("crowd.owner-epsilon={ values = [2.0, 300.0] }")
    timelines = make_timelines(of, prepare(of)[1], 1, 0)
    chosen = {int(device): int(choice) for device, choice in zip(timelines[0].device, timelines[0].chosen, strict=True)}
    assert sorted(chosen.values()).count(0) == 10 and len(chosen) == 20
    told = "\n".join(privacy_lines(accounting.report(of, timelines)))
    assert "10 owners have chosen ε = 2:" in told and "10 owners have chosen ε = 300:" in told
    without = dataclasses.replace(timelines[0])
    assert "owners" not in "\n".join(privacy_lines(accounting.report(task(), [without])))
