"""Courses of a group with disturbances by chance: `python -m tests.support.random_courses 10000` runs many."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from tests.support.group_courses import DONE, WAITING, Course, Disturbance, reference, same_bits

UNDISTURBED_STEPS = 600
"""About as many messages as an undisturbed course has."""
_KINDS = ("kill", "kill", "kill", "cut off", "restart", "lose server and member", "alter")


def random_disturbances(chance: random.Random) -> list[Disturbance]:
    """Draw what happens: up to six losses, restarts and altered frames; most members come back."""
    made = []
    for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 6))):
        kind, member = chance.choice(_KINDS), chance.randrange(1, 6)
        step = chance.randrange(UNDISTURBED_STEPS)
        made.append(Disturbance(step=step, kind=kind, member=member))
        if kind in ("kill", "lose server and member") and chance.random() < 0.7:
            made.append(Disturbance(step=step + chance.randrange(300), kind="come back", member=member))
    return made


def check_course(seed: int, disturbances: list[Disturbance]) -> set[str]:
    """Run a course and compare its model with that of one process; return what happened in it."""
    course = Course(seed)
    stage = course.run(disturbances)
    told = f"course {seed}: {disturbances}\n" + "\n".join(map(str, course.events[-30:]))
    if stage == WAITING:
        assert not course.enough, told
    else:
        assert stage == DONE, told
        if any(member.model is not None for member in course.members.values()):
            assert same_bits(course.model(), reference(course.turns())), told
        else:
            assert not any(_could_open(course, number) for number in course.members), told
    return {event.what for event in course.events} | {f"ends {stage}"}


def _could_open(course: Course, number: int) -> bool:
    """Tell whether there is a cut that a member can open, so that it should have the model."""
    return course.group.cut is not None and all(course.group.able(number, piece) for piece in course.terms.plan.owners)


def main(count: int, seed: int) -> None:
    """Run many courses, and say what they met."""
    chance, seen, begun = random.Random(seed), Counter[str](), time.perf_counter()
    for number in range(count):
        seen.update(check_course(seed * 1_000_000 + number, random_disturbances(chance)))
    took = time.perf_counter() - begun
    print(
        f"{count} courses in {took:.0f} s ({1000 * took / max(count, 1):.0f} ms each), all with the bits of one process"
    )
    for what, times in seen.most_common():
        print(f"  {what}: in {times}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
