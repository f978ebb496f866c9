"""A server that cheats, with no corrupt device at all: what it could read on the first version, and can no more.

Each attack runs twice: against devices as they are, and against devices that have forgotten a rule. There it must
succeed, in every integer; otherwise its failure would say nothing.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from crowdml.core.errors import CrowdError, TermsViolated
from crowdml.secure_aggregation import SumAborted
from crowdml.secure_aggregation import sum_terms as terms_module
from crowdml.secure_aggregation.stages import MASKED, ORDER
from tests.support.cheating import CheatingServer, FewNeighbours, Island, Plan, TwoSets, as_at_first, forget
from tests.support.rehearsal import Rehearsal

ATTACKS: dict[str, Plan] = {
    "two survivor sets": TwoSets(),
    "mail from only t neighbours, withheld": FewNeighbours(told=False),
    "mail from only t neighbours, the others not named": FewNeighbours(told=True),
    "an island": Island(),
}
SIZES = [10, 40, 300]
COURSES: dict[Any, tuple[Rehearsal, Any]] = {}
"""Sums up to the moment when everybody has shared: attacks begin there, and each goes on with copies."""


class Attack:
    """A sum under a plan, from the moment when everybody has shared, and what came of it."""

    def __init__(self, plan: Plan, crowd: Rehearsal, vectors: Any) -> None:
        assert isinstance(crowd.server, CheatingServer)
        self.crowd, self.vectors, self.server = copy.copy(crowd), vectors, crowd.server.fork(plan)
        self.crowd.server, self.crowd.bodies, self.crowd.lost = self.server, {}, {}
        self.crowd.devices = {slot: copy.copy(device) for slot, device in crowd.devices.items()}
        try:
            self.crowd.upload(vectors)
            self.crowd.agree()
            self.crowd.finish()
        except SumAborted:
            pass

    @property
    def succeeded(self) -> bool:
        """Whether the server has read its victim's vector, or its island's sum, in every integer."""
        target = sum(self.vectors[at] for at in self.server.plan.target)
        return self.server.recovered is not None and bool((self.server.recovered == target).all())

    @property
    def both_kinds(self) -> set[int]:
        """Whose own mask and whose key were both given a share of away, by whomever."""
        given = self.server.shares_of
        return {at for at, kind in given if given[at, kind] and given.get((at, 1 - kind))}


@pytest.fixture
def attack(make_terms: Any, begin: Any, draw_vectors: Any) -> Any:
    def attacked(plan: Plan, members: int) -> Attack:
        key = members, getattr(terms_module, "make_graph")  # noqa: B009  as it is now, patched or not
        if key not in COURSES:
            terms, slots = make_terms(members, math.ceil(0.7 * members), members // 10), list(range(members))
            crowd: Rehearsal = begin(terms, slots)
            crowd.server = CheatingServer(terms, 0, 1, crowd._members.cards)
            crowd.greet()
            crowd.settle()
            crowd.exchange()
            COURSES[key] = crowd, draw_vectors(terms, slots, members)
        return Attack(plan, *COURSES[key])

    return attacked


@pytest.mark.parametrize("members", SIZES)
@pytest.mark.parametrize("name", ATTACKS)
def test_what_worked_on_the_first_version_works_no_more(name: str, members: int, attack: Any) -> None:
    found = attack(ATTACKS[name], members)
    assert not found.succeeded
    assert not found.both_kinds


@pytest.mark.parametrize("members", [10, 40, 100])
@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "an island"])
def test_devices_as_at_first_are_read_in_every_integer(name: str, members: int, attack: Any, monkeypatch: Any) -> None:
    as_at_first(monkeypatch)
    assert attack(ATTACKS[name], members).succeeded


def test_an_island_could_be_read_at_first(attack: Any, monkeypatch: Any) -> None:
    as_at_first(monkeypatch)
    assert attack(Island(), 300).succeeded


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("two survivor sets", "require_one_view"),
        ("mail from only t neighbours, withheld", "require_mail"),
        ("mail from only t neighbours, the others not named", "saw_the_same"),
        ("an island", "require_no_island"),
    ],
)
def test_each_rule_is_needed(name: str, rule: str, attack: Any, monkeypatch: Any) -> None:
    """All other rules, and the present graph: without this one alone the attack is back."""
    forget(monkeypatch, rule)
    assert attack(ATTACKS[name], 300).succeeded


@pytest.mark.parametrize("members", [11, 23, 64, 65, 66, 101, 150])
@pytest.mark.parametrize("name", ATTACKS)
def test_the_attacks_fail_at_other_sizes_too(name: str, members: int, attack: Any) -> None:
    found = attack(ATTACKS[name], members)
    assert not found.succeeded
    assert not found.both_kinds


def test_an_honest_server_would_have_got_the_sum(attack: Any) -> None:
    """The harness itself is right: a plan that changes nothing meets no refusal, and has every share."""
    found = attack(Plan(), 40)
    assert sum(map(bool, found.server.shares_of.values())) == 40
    assert found.server.sum_of(list(range(40))).tolist() == sum(found.vectors.values()).tolist()
    assert found.server.recovered is None  # of the victim alone it still knows nothing


@pytest.mark.parametrize("rule", [True, False])
def test_devices_shown_different_models_do_not_sum(rule: bool, make_terms: Any, begin: Any, monkeypatch: Any) -> None:
    """Nine devices get a model with dead units, the tenth the real one: the sum would be the tenth's vector."""
    from crowdml.secure_aggregation import BroadcastHash

    if not rule:
        forget(monkeypatch, "require_broadcast")
    crowd: Rehearsal = begin(make_terms(10, 7, 1), list(range(10)))
    crowd.devices[3]._broadcast = BroadcastHash.of(0, b"the real model")
    crowd.server._broadcasts = _Anything()  # a cheating server does not mind
    crowd.greet()
    crowd.settle()
    assert (3 in crowd.lost) == rule
    if rule:
        with pytest.raises(TermsViolated, match="another model"):
            _met_again(crowd, 3)


def test_devices_that_accepted_different_tasks_do_not_sum(make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    """Under one signed task nine devices add hardly any noise; under the other the tenth relies on theirs."""
    from dataclasses import replace

    terms = replace(make_terms(10, 7, 1), task_hash="with little noise")
    crowd: Rehearsal = begin(terms, list(range(10)))
    crowd.devices[3].terms = replace(terms, task_hash="the one that the tenth has accepted")
    vectors = draw_vectors(terms, crowd.slots)
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    with pytest.raises(SumAborted):
        crowd.upload(vectors)
    assert 3 not in crowd.bodies  # no mail of the others can be opened: nothing is masked, or charged


class _Anything(dict[int, bytes]):
    """Takes every member at its word, and shows the first one's to all."""

    def setdefault(self, key: int, default: Any = None) -> Any:
        super().setdefault(key, default)
        return default


def _met_again(crowd: Rehearsal, slot: int) -> None:
    device = crowd.devices[slot]
    device.stage, device._roster = ORDER[0], None
    device.meet(crowd.server.roster)


def test_two_broadcasts_of_one_version_or_of_one_that_is_too_old_are_refused(make_terms: Any, begin: Any) -> None:
    from dataclasses import replace

    from crowdml.secure_aggregation import BroadcastHash

    crowd: Rehearsal = begin(make_terms(10, 7, 1), list(range(10)), version=5)
    crowd.greet()
    roster, mine = crowd.server.roster, BroadcastHash.of(5, b"")
    for shown in (
        (mine, BroadcastHash.of(5, b"x")),
        (BroadcastHash.of(4, b""), mine),
        (mine, BroadcastHash.of(6, b"")),
        (),
    ):
        device = crowd.devices[0]
        device.stage = ORDER[0]
        with pytest.raises(TermsViolated):
            device.meet(replace(roster, broadcasts=shown))
    late = replace(make_terms(10, 7, 1), delays=2)
    crowd.devices[1].terms = late
    crowd.devices[1].meet(replace(roster, broadcasts=(BroadcastHash.of(3, b"old"), mine)))


def test_no_device_is_content_where_the_server_cheats(attack: Any) -> None:
    """Those who are shown what does not fit together say so; they do not just stay silent."""
    found = attack(FewNeighbours(told=False), 10)
    with pytest.raises(CrowdError, match="withheld"):
        device = found.crowd.devices[0]
        device.stage = MASKED
        device.mask(found.server.mail(0), np.zeros(20, np.int64))
