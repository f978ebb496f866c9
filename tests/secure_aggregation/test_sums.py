"""Whatever drops out where: the sum is exact, or given up cleanly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.secure_aggregation import SumAborted, SumTerms, bits_for
from tests.support.rehearsal import NEVER, Rehearsal


def should_come_out(crowd: Rehearsal, lost: dict[int, int]) -> bool:
    """Work out from graph and losses alone whether enough members and shares are left."""
    terms, server = crowd.terms, crowd.server

    def after(stage: int, among: set[int]) -> set[int]:
        return {slot for slot in among if lost.get(slot, NEVER) > stage}

    roster = after(1, after(0, set(crowd.slots)))
    if min(len(after(0, set(crowd.slots))), len(roster)) < terms.least:
        return False
    graph = server.graph
    near = {
        slot: {server.roster.slots[at] for at in server._near[number]}
        for number, slot in enumerate(server.roster.slots)
    }

    def enough(among: set[int], given: set[int]) -> set[int]:
        return {slot for slot in given if len(near[slot] & among) >= graph.threshold}

    shared = after(2, roster)
    masked = enough(shared, after(3, shared))
    consented = enough(masked, after(4, masked))
    revealed = after(5, consented)
    if min(len(shared), len(masked)) < terms.least or len(consented) < graph.agreeing:
        return False
    return enough(revealed, shared) == shared


def one_trial(generator: np.random.Generator, most: int, make_terms: Any, begin: Any, draw_vectors: Any) -> bool:
    members = int(generator.integers(3, most + 1))
    least = int(generator.integers(max(3, 6 * members // 10), members + 1))
    corrupt = int(generator.integers(0, max(1, least // 4)))
    try:
        terms = make_terms(members, least, corrupt, size=int(generator.integers(1, 40)))
    except BadInput:
        return False
    slots = sorted(generator.choice(10 * most, members, replace=False).tolist())
    count = min(members, int(generator.integers(0, members - least + 3)))
    lost = {int(slot): int(generator.integers(0, 6)) for slot in generator.choice(slots, count, replace=False)}
    vectors = draw_vectors(terms, slots, int(generator.integers(1 << 30)))
    crowd = begin(terms, slots, lost)
    try:
        result = crowd.run(vectors)
    except SumAborted:
        assert not should_come_out(crowd, lost)
        return False
    assert should_come_out(crowd, lost)
    here = [slot for slot in slots if lost.get(slot, NEVER) > 3]
    assert set(result.survivors) <= set(here)
    assert len(result.survivors) >= terms.least
    assert result.total.tolist() == sum(vectors[slot] for slot in result.survivors).tolist()
    return True


def test_every_pattern_of_losses_gives_the_exact_sum_or_none(make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    generator = np.random.default_rng(20)
    came_out = [one_trial(generator, 24, make_terms, begin, draw_vectors) for _ in range(60)]
    assert 15 < sum(came_out) < 60


def test_a_hundred_and_thirty_members_with_losses_at_every_stage(
    make_terms: Any, begin: Any, draw_vectors: Any
) -> None:
    generator = np.random.default_rng(21)
    terms, slots = make_terms(130, 95, 6), list(range(130))
    lost = {int(slot): int(generator.integers(0, 6)) for slot in generator.choice(130, 30, replace=False)}
    vectors = draw_vectors(terms, slots, int(generator.integers(1 << 30)))
    result = begin(terms, slots, lost).run(vectors)
    assert sorted(result.survivors) == [slot for slot in slots if lost.get(slot, NEVER) > 3]
    assert result.total.tolist() == sum(vectors[slot] for slot in result.survivors).tolist()


@pytest.mark.parametrize("stage", range(6))
def test_one_member_may_be_lost_at_any_stage(stage: int, make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    terms, slots = make_terms(6, 4), [2, 3, 5, 8, 13, 21]
    vectors = draw_vectors(terms, slots, stage)
    result = begin(terms, slots, {5: stage}).run(vectors)
    assert (5 in result.survivors) == (stage > 3)
    assert result.total.tolist() == sum(vectors[slot] for slot in result.survivors).tolist()


@pytest.mark.parametrize("stage", range(6))
def test_too_many_losses_give_nothing(stage: int, make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    terms, slots = make_terms(6, 4), [2, 3, 5, 8, 13, 21]
    crowd = begin(terms, slots, dict.fromkeys([3, 5, 8, 13], stage))
    with pytest.raises(SumAborted):
        crowd.run(draw_vectors(terms, slots, stage))


def test_the_largest_integers_still_give_the_right_sum(make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    terms, slots = make_terms(5, 4, size=2, largest=2**20), [1, 2, 3, 4, 5]
    vectors = {slot: np.array([2**20, -(2**20)]) for slot in slots}
    assert begin(terms, slots).run(vectors).total.tolist() == [5 * 2**20, -5 * 2**20]


@pytest.mark.parametrize("value", [1001, -1001, 2**40])
def test_an_integer_out_of_range_is_an_error_and_never_a_wrong_sum(
    value: int, make_terms: Any, begin: Any, draw_vectors: Any
) -> None:
    terms, slots = make_terms(5, 4, size=1), [1, 2, 3, 4, 5]
    crowd = begin(terms, slots)
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    with pytest.raises(BadInput, match="largest that a sum can take"):
        crowd.devices[1].mask(crowd.server.mail(1), np.array([value]))


@pytest.mark.parametrize("vector", [np.zeros(3, np.int64), np.zeros(2, np.int32), np.zeros(2)])
def test_a_vector_has_the_size_and_type_of_the_terms(
    vector: Any, make_terms: Any, begin: Any, draw_vectors: Any
) -> None:
    crowd = begin(make_terms(5, 4, size=2), [1, 2, 3, 4, 5])
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    with pytest.raises(BadInput, match="are summed"):
        crowd.devices[1].mask(crowd.server.mail(1), vector)


def test_noise_is_part_of_the_sum_and_may_be_larger(make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    terms, slots = make_terms(5, 4, size=2, largest=100), [1, 2, 3, 4, 5]
    crowd = begin(terms, slots)
    crowd.greet()
    crowd.settle()
    crowd.exchange()
    for slot in slots:
        body = crowd.devices[slot].mask(crowd.server.mail(slot), np.array([slot, 0]), np.array([-slot, 101]))
        crowd.server.masked(slot, body)
    crowd.server.close_masked()
    crowd.agree()
    assert crowd.finish().total.tolist() == [0, 505]


def test_terms_that_could_wrap_or_hide_nobody_are_refused() -> None:
    right = {"task": "t", "size": 1, "bits": 12, "largest": 100, "invited": 10, "least": 8, "corrupt": 1}
    SumTerms(**right)  # type: ignore[arg-type]
    for change in ({"bits": 10}, {"least": 2}, {"least": 11}, {"corrupt": 7}, {"corrupt": 5}, {"least": 6}):
        with pytest.raises(BadInput):
            SumTerms(**(right | change))  # type: ignore[arg-type]


def test_bits_leave_room_for_noise() -> None:
    assert bits_for(10, 100) == 11
    assert bits_for(10, 100, 1000.0) > bits_for(10, 100)
    with pytest.raises(BadInput, match="bits"):
        bits_for(1000, 2**60)
