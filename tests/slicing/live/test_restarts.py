"""After a restart of the server its groups go on from their cut, also where an owner takes its time to come back."""

from __future__ import annotations

import pytest

from crowdml.slicing.live.group_records import GATHERING, RUNNING
from crowdml.slicing.live.slice_frames import read_header
from tests.support.group_bench import GroupBench, new_group
from tests.support.group_courses import make_terms

TERMS = make_terms(cut_every=1)


@pytest.fixture
def bench() -> GroupBench:
    """A group with a cut, some pieces of which one member alone has."""
    bench = GroupBench(TERMS)
    bench.run_to_a_cut()
    return bench


def sole_owner(bench: GroupBench) -> int:
    """Return a member that alone could show a piece of the cut."""
    assert bench.group.cut is not None
    having: dict[int, list[int]] = {}
    for number in bench.members:
        for header in map(read_header, bench.deposits(number)):
            if (header.turn, header.batch) == bench.group.cut.place:
                having.setdefault(header.piece, []).append(number)
    return next(numbers[0] for numbers in having.values() if len(numbers) == 1)


def come_back(bench: GroupBench, missing: int) -> list[bytes]:
    """Start the server again, and let all but one member come back; return what that one would show."""
    shown = {number: bench.deposits(number) for number in bench.members}
    bench.group, bench.between = new_group(TERMS, incarnation=2), []
    for number in bench.members:
        if number != missing:
            bench.deliver(bench.group.joined(number, bench.card(number), shown[number]))
    return shown[missing]


def test_a_group_waits_for_the_owner_that_alone_has_a_piece_of_its_cut(bench: GroupBench) -> None:
    cut, late = bench.group.cut, sole_owner(bench)
    deposits = come_back(bench, late)
    assert bench.group.begin(patient=True) == [] and bench.group.stage == GATHERING and bench.group.patient
    bench.deliver(bench.group.joined(late, bench.card(late), deposits))
    assert bench.group.stage == RUNNING and not bench.group.patient
    assert cut is not None and bench.group.cut is not None and bench.group.cut.place == cut.place
    assert not any(event.what == "pass again" for event in bench.group.events)


def test_a_group_goes_on_at_once_without_one_that_had_no_piece(bench: GroupBench) -> None:
    cut, late = bench.group.cut, next(each for each in bench.members if not bench.deposits(each))
    come_back(bench, late)
    bench.deliver(bench.group.begin(patient=True))
    assert bench.group.stage == RUNNING and cut is not None and bench.group.cut is not None
    assert bench.group.cut.place == cut.place


def test_a_cut_that_comes_together_late_is_gone_on_from_without_those_still_missing(bench: GroupBench) -> None:
    cut, late = bench.group.cut, sole_owner(bench)
    stood_by = next(each for each in bench.members if not bench.deposits(each))
    deposits = come_back(bench, late)
    bench.group.left(stood_by, "gone")
    bench.group.begin(patient=True)
    bench.deliver(bench.group.joined(late, bench.card(late), deposits))
    assert bench.group.stage == RUNNING and cut is not None and bench.group.cut is not None
    assert bench.group.cut.place == cut.place and stood_by not in bench.group.assignment


def test_in_the_end_the_pass_begins_again(bench: GroupBench) -> None:
    come_back(bench, sole_owner(bench))
    bench.group.begin(patient=True)
    bench.deliver(bench.group.begin())
    assert any(event.what == "pass again" for event in bench.group.events) and bench.group.stage == RUNNING
    assert bench.group.cut is not None and bench.group.cut.batch == 0


def test_where_nobody_shows_anything_there_is_nothing_to_wait_for(bench: GroupBench) -> None:
    late = sole_owner(bench)
    bench.group, bench.between = new_group(TERMS, incarnation=2), []
    for number in bench.members:
        if number != late:
            bench.deliver(bench.group.joined(number, bench.card(number)))
    bench.deliver(bench.group.begin(patient=True))
    assert bench.group.stage == RUNNING


def test_who_connects_again_and_again_meanwhile_is_remembered_once(bench: GroupBench) -> None:
    late = sole_owner(bench)
    other = next(each for each in bench.group.assignment if each != late)
    deposits, shown = bench.deposits(late), bench.deposits(other)
    come_back(bench, late)
    bench.group.begin(patient=True)
    before = len(bench.group._shown)
    for _ in range(5):
        bench.group.joined(other, bench.card(other), shown)
    assert len(bench.group._shown) == before
    bench.deliver(bench.group.joined(late, bench.card(late), deposits))
    assert bench.group.stage == RUNNING
