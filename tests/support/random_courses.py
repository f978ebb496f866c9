"""Courses of a group with disturbances by chance: `python -m tests.support.random_courses 10000` runs many.

    python -m tests.support.random_courses COUNT SEED FILE

adds what a piece of them met to a file, so that many can be run in pieces; each piece has a seed of its own.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

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


def main(count: int, seed: int, into: Path | None = None) -> None:
    """Run many courses, and say what they met; whatever differs from one process ends it with an error."""
    chance, seen, begun = random.Random(seed), Counter[str](), time.process_time()
    for number in range(count):
        seen.update(check_course(seed * 1_000_000 + number, random_disturbances(chance)))
    took = time.process_time() - begun
    print(
        f"{count} courses in {took:.0f} CPU s ({1000 * took / max(count, 1):.0f} ms each), all with the bits of one "
        "process"
    )
    for what, times in seen.most_common():
        print(f"  {what}: in {times}")
    if into is not None:
        add_piece(into, count, seed, took, seen)


def add_piece(into: Path, count: int, seed: int, took: float, seen: Counter[str]) -> None:
    """Add a piece to a file of results; the same seed again would be the same courses, and is refused."""
    nothing: dict[str, Any] = {"courses": 0, "seeds": [], "cpu_s": 0.0, "met": {}}
    found = json.loads(into.read_text()) if into.exists() else nothing
    if seed in found["seeds"]:
        raise SystemExit(f"{into} has the courses of seed {seed} already")
    found["courses"] += count
    found["seeds"] = sorted([*found["seeds"], seed])
    found["cpu_s"] = round(found["cpu_s"] + took, 1)
    found["met"] = dict(sorted((Counter(found["met"]) + seen).items()))
    into.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else 10_000,
        int(given[1]) if len(given) > 1 else 1,
        Path(given[2]) if len(given) > 2 else None,
    )
