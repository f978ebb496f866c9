"""Groups that lose members and servers at any message end in the bits of one process, and none of them stalls."""

from __future__ import annotations

import random

import pytest

from tests.support.crowd_courses import check_course as check_crowd
from tests.support.group_courses import DONE, Course, Disturbance, make_terms, reference, same_bits
from tests.support.random_courses import UNDISTURBED_STEPS, check_course, random_disturbances

COURSES = 300
CROWDS = 40


def test_an_undisturbed_course_ends_in_the_bits_of_one_process() -> None:
    course = Course(0)
    assert course.run([]) == DONE
    assert [dominator for _, dominator, _ in course.turns()[:5]] != [1, 2, 3, 4, 5]
    assert sorted(dominator for _, dominator, _ in course.turns()) == sorted([1, 2, 3, 4, 5] * 2)
    assert same_bits(course.model(), reference(course.turns()))


def test_random_courses_end_in_the_bits_of_one_process() -> None:
    chance, seen = random.Random(0), dict[str, int]()
    for seed in range(COURSES):
        for what in check_course(seed, random_disturbances(chance)):
            seen[what] = seen.get(what, 0) + 1
    # A test that meets none of these has tested nothing.
    assert {"lost", "restored", "dominator lost", "piece", "turn lost", "pass again"} <= set(seen), seen


def test_groups_that_share_end_in_the_bits_of_one_process_whatever_net_and_numbers() -> None:
    """Several groups, every net, number format, window and deal: what they upload, and their models, are exact."""
    seen = set[str]()
    for seed in range(CROWDS):
        seen |= check_crowd(seed)
    assert {"lost", "restored", "dominator lost", "shared", "turn lost", "pass again"} <= seen, seen


@pytest.mark.parametrize("shuffle", ["all", "least"])
def test_few_pieces_move_where_the_task_asks_for_that(shuffle: str) -> None:
    course = Course(1, make_terms(shuffle=shuffle))
    assert course.run([]) == DONE
    moved = sum(event.what == "piece" for event in course.events)
    turns = len(course.turns())
    assert moved <= 2 * turns if shuffle == "least" else moved > 2 * turns
    assert same_bits(course.model(), reference(course.turns(), course.terms))


def test_a_loss_without_dummies_waits_at_the_cut_until_the_member_is_back() -> None:
    course = Course(2, size=3)
    killed = Disturbance(step=UNDISTURBED_STEPS // 4, kind="kill", member=2)
    assert course.run([killed]) == "waiting"
    course.disturb(Disturbance(step=0, kind="come back", member=2))
    assert course.run([]) == DONE
    assert any(event.what == "pass again" for event in course.events)


def test_an_altered_frame_is_named_and_its_sender_is_out_for_the_pass() -> None:
    course = Course(3)
    assert course.run([Disturbance(step=60, kind="alter")]) == DONE
    lost = [event for event in course.events if event.what == "lost"]
    assert len(lost) == 1 and "was altered" in lost[0].why
    out = lost[0].members[0]
    later = [event for event in course.events if event.what == "go"]
    banned = [
        event for event in later[later.index(next(e for e in later if e.turn >= lost[0].turn)) + 1 :] if event.turn < 5
    ]
    assert all(out not in event.members for event in banned)
    assert same_bits(course.model(), reference(course.turns()))
