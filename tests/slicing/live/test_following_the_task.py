"""Groups follow their task: what members have and hear when it is paused, has ended, or their group is dissolved."""

from __future__ import annotations

import pytest

from crowdml.core.errors import NotAuthorised
from crowdml.slicing.live import controls as say
from crowdml.slicing.live.group_records import PAUSED, STOPPED
from crowdml.slicing.live.member_guard import MOST_GROUPS
from tests.support.group_bench import GroupBench, new_group
from tests.support.group_courses import Course, reference, same_bits


def test_a_stopped_group_hands_over_its_last_cut_and_says_why() -> None:
    course = Course(0)
    course.run([], until=lambda: course.group.cut is not None and course.group.cut.turn >= 1)
    cut = course.group.cut
    assert cut is not None
    course._deliver(course.group.stop("the operator stopped it"))
    assert course.run([]) == STOPPED
    assert {member.reason for member in course.members.values()} == {"the operator stopped it"}
    turns = [each for each in course.turns() if each[0] < cut.turn]
    dominator = course.group._dealer.order(0, course.size)[cut.turn]
    assert same_bits(course.model(), reference([*turns, (cut.turn, dominator, cut.batch)]))
    assert all(member.model is not None for member in course.members.values())


def test_a_group_without_a_cut_says_that_there_is_no_model() -> None:
    bench, group = GroupBench(), new_group()
    for number in (1, 2):
        group.joined(number, bench.card(number))
    out = group.stop("it is over")
    assert len(out) == 2 and all(isinstance(told, say.Stop) and "cannot open" in told.reason for _, told in out)


def test_a_paused_group_goes_on_from_its_cut() -> None:
    bench = GroupBench()
    bench.run_to_a_cut()
    cut = bench.group.cut
    assert cut is not None
    out = bench.group.pause()
    assert bench.group.stage == PAUSED and all(isinstance(told, say.Stop) and told.again for _, told in out)
    bench.deliver(out)
    assert bench.group.left(1, "gone") == [] and bench.group.pause() == []
    assert bench.group.events[-1].what == "paused"
    shown = {number: bench.deposits(number) for number in bench.members}
    bench.group, bench.between = new_group(incarnation=2), []
    for number in bench.members:
        bench.deliver(bench.group.joined(number, bench.card(number), shown[number]))
    assert bench.group.stage == "running" and bench.group.cut is not None and bench.group.cut.place == cut.place


def test_members_of_a_dissolved_group_meet_another_one() -> None:
    """Numbers stand for others there, and attempts begin anew; who saw sums is not forgotten."""
    bench = GroupBench()
    bench.run_to_a_cut()
    bench.deliver(bench.group.dissolve())
    seen = {number: len(member.guard.observers) for number, member in bench.members.items()}
    assert any(seen.values())
    bench.group, bench.between = new_group(number=2), []
    order = list(bench.members)
    bench.members = {number: bench.members[order[-number]] for number in order}
    for number in bench.members:
        bench.deliver(bench.group.joined(number, bench.card(number)))
    assert bench.group.stage == "running"
    assert sum(len(member.guard.observers) for member in bench.members.values()) >= sum(seen.values())


def test_a_server_cannot_send_a_device_from_group_to_group_for_ever() -> None:
    bench = GroupBench()
    member = bench.members[1]
    member.handle(say.Stop(reason="dissolved", again=True))
    for group in range(2, MOST_GROUPS + 1):
        member.handle(say.Welcome(group=group, number=1))
    with pytest.raises(NotAuthorised, match="more than 10 groups"):
        member.handle(say.Welcome(group=MOST_GROUPS + 1, number=1))
