"""Groups with noise on the first cut: what is drawn once is all that ever crosses, whoever is lost on the way."""

from __future__ import annotations

import random

import numpy as np
import pytest

from crowdml.privacy.calibration.least_noise import exact_scale
from crowdml.privacy.noise.grid import GridMechanism, make_grid
from crowdml.privacy.noise.laws import ROUNDED_GAUSSIAN
from crowdml.privacy.noise.response import RandomisedResponse
from crowdml.privacy.sanitisers.first_sums import FirstCut
from crowdml.slicing.live.member_machine import Member
from crowdml.slicing.live.slice_terms import SliceTerms
from crowdml.slicing.piece_messages import Told
from crowdml.slicing.piece_owner import PieceOwner
from tests.support.group_courses import DONE, FIRST, WAITING, Course, make_terms, released_reference, rows_of, same_bits
from tests.support.random_courses import random_disturbances
from tests.support.sliced_nets import model_of, plan_of

COURSES = 25


def noisy_terms(**changes: object) -> SliceTerms:
    grid = make_grid(2, 8, 1.0, "example")
    mechanism = GridMechanism(grid=grid, law=ROUNDED_GAUSSIAN, scale=exact_scale(0.5 * grid.levels))
    cut = FirstCut(mechanism=mechanism, labels=RandomisedResponse.calibrated(1.0, 3))
    return make_terms(plan=plan_of(model_of(), 2, released=True), cut=cut, **changes)


def test_random_courses_end_in_the_bits_of_a_simulation_with_the_same_draws() -> None:
    chance, seen = random.Random(3), set[str]()
    for seed in range(COURSES):
        course = Course(seed, noisy_terms())
        stage = course.run(random_disturbances(chance))
        assert stage in (DONE, WAITING)
        seen |= {event.what for event in course.events}
        if stage == DONE and any(member.model is not None for member in course.members.values()):
            # Biases of the first layer are no part of what is drawn: live they are not known to a dominator.
            assert same_bits(course.model(), released_reference(course))
    assert {"lost", "restored", "dominator lost", "piece"} <= seen, seen


class Overheard:
    """Everything that leaves dominators at the first stage, as followers read it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.columns: list[np.ndarray] = []
        heard = PieceOwner.hear

        def hear(owner: PieceOwner, told: Told) -> list[Told]:
            if (told.kind, told.stage) == ("forward", 0):
                self.columns.append(told.numbers.copy())
            return heard(owner, told)

        monkeypatch.setattr(PieceOwner, "hear", hear)

    def distinct(self) -> int:
        """Count different columns that were seen."""
        return len({column.tobytes() for message in self.columns for column in message.T})


def _rows(course: Course) -> int:
    return sum(len(rows_of(member)[1]) for member in range(1, course.size + 1))


def test_followers_never_see_a_second_draw_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two passes, losses and restarts: each follower of the first layer sees one column of a row, and no other."""
    overheard, course = Overheard(monkeypatch), Course(11, noisy_terms())
    chance = random.Random(11)
    assert course.run(random_disturbances(chance) + random_disturbances(chance)) in (DONE, WAITING)
    first = len(course.terms.plan.first)
    assert 0 < overheard.distinct() <= first * _rows(course)
    assert sum(message.shape[1] for message in overheard.columns) > overheard.distinct()


def test_the_same_look_notices_noise_that_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a device that forgets what it drew shows other columns in the second pass."""
    overheard, course = Overheard(monkeypatch), Course(11, noisy_terms())
    kept = course.kept.of

    def forgetful(member: int) -> object:
        def released(sums: object) -> object:
            course.kept.columns.pop(member, None)
            return kept(member)(sums)  # type: ignore[arg-type]

        return released

    for number, member in course.members.items():
        member._released = forgetful(number)  # type: ignore[assignment]
    assert course.run([]) == DONE
    assert overheard.distinct() > len(course.terms.plan.first) * _rows(course)


def test_layers_before_the_cut_stay_as_they_are_and_others_learn() -> None:
    course = Course(5, noisy_terms())
    assert course.run([]) == DONE
    model = course.model()
    assert model[0]["w"].tobytes() == FIRST[0]["w"].tobytes() and model[0]["b"].tobytes() == FIRST[0]["b"].tobytes()
    assert not np.array_equal(model[2]["w"], FIRST[2]["w"])


def test_a_member_asks_before_its_first_batch_and_only_as_dominator() -> None:
    course = Course(6, noisy_terms())
    asked: list[tuple[int, int | None, str]] = []
    for number, member in course.members.items():
        ask = course.kept.of(number)

        def released(sums: object, number: int = number, member: Member = member, ask: object = ask) -> object:
            asked.append((number, member.role, "before" if member._worker and member._worker.at_rest else "after"))
            return ask(sums)  # type: ignore[operator]

        member._released = released  # type: ignore[assignment]
    assert course.run([]) == DONE
    assert sorted(number for number, _, _ in asked) == sorted([1, 2, 3, 4, 5] * 2)
    assert {(role, when) for _, role, when in asked} == {(-1, "before")}


def test_noise_and_what_is_released_belong_together() -> None:
    course = Course(7, noisy_terms())
    with pytest.raises(ValueError, match="belong together"):
        Member(course.terms, *rows_of(1), lambda turn, rows: np.arange(rows), None, lambda count: bytes(count))
