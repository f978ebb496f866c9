"""Whom a group goes on without, and who saw what: complaints, stalls, and members that were sent sums of rows.

A server cannot tell who is right when one member complains of another: frames between them are sealed. So whoever is
complained of is out for the pass, and whoever complains a second time is out with it: one member alone cannot empty a
group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from crowdml.slicing.live.member_cards import Card
from crowdml.slicing.live.slice_plan import SlicePlan

MOST_COMPLAINTS = 1
"""Complaints of one member in a pass that cost it nothing."""


class GroupTrust:
    """What a group's machine remembers of its members.

    Attributes:
        banned: Members that are out for the pass.
        observers: Of every member, who was sent sums of its rows: identities, or fresh keys where members are hidden.
    """

    def __init__(self) -> None:
        self.observers: dict[int, set[bytes]] = {}
        self.begin_pass()

    def begin_pass(self) -> None:
        """Let everybody in again."""
        self.banned: set[int] = set()
        self._complaints: Counter[int] = Counter()

    def complaint(self, by: int, about: int) -> list[int]:
        """Take a complaint; return who is out because of it: the accused, unless nobody else is."""
        self._complaints[by] += 1
        out = [about] if about not in (0, by) else []
        if self._complaints[by] > MOST_COMPLAINTS:
            out.append(by)
        self.banned.update(out)
        return out

    def note_turn(self, plan: SlicePlan, assignment: Sequence[int], cards: Mapping[int, Card]) -> None:
        """A turn begins: the owners of first sums will see those of the dominator's rows."""
        seen = self.observers.setdefault(assignment[0], set())
        seen |= {cards[assignment[piece + 1]].identity or cards[assignment[piece + 1]].fresh for piece in plan.first}


class Stall:
    """A dominator's batch does not move: owners are asked whom they wait for.

    Args:
        owners: Who is asked.
    """

    def __init__(self, owners: Sequence[int]) -> None:
        self._owners = tuple(owners)
        self._answers: dict[int, tuple[int, ...]] = {}

    def answer(self, member: int, waits_for: tuple[int, ...]) -> bool:
        """Take an answer; tell whether it was the last one."""
        self._answers[member] = waits_for
        return len(self._answers) == len(self._owners)

    def lost(self) -> tuple[list[int], str]:
        """Return who is lost, and why: those that stayed silent, or those that hold up the others."""
        silent = [member for member in self._owners if member not in self._answers]
        if silent:
            return silent, "did not answer in time"
        return who_holds_up(self._answers), "was waited for, and waited for nobody"


def who_holds_up(answers: Mapping[int, Sequence[int]]) -> list[int]:
    """Find whom a batch waits for: who is waited for, and waits for nobody.

    >>> who_holds_up({1: (2, 3), 2: (), 3: (2,)})
    [2]
    >>> who_holds_up({1: (2,), 2: (1,)})
    []
    """
    waited_for = {other for member, waits in answers.items() for other in waits if other != member}
    return sorted(member for member, waits in answers.items() if member in waited_for and not waits)
