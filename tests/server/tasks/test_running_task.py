"""Rounds: who is invited, who is made up for, and that a restart changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from crowdml.server.tasks.running_task import Invited, by_hash


class Crowd:
    """Devices, a clock, and a server that may be started anew."""

    def __init__(self, size: int, per_round: int) -> None:
        self.active, self.changes, self.now, self._per_round = list(range(size)), 0, 0.0, per_round
        self.restart()

    def restart(self) -> None:
        self.invited = Invited(self._per_round, 30.0, by_hash(b"secret"), lambda: self.now)

    def join(self, slot: int) -> None:
        self.active.append(slot)
        self.changes += 1

    def leave(self, slot: int) -> None:
        self.active.remove(slot)
        self.changes += 1

    def of(self, version: int, received: int = 0) -> set[int]:
        return {
            slot for slot in self.active if self.invited.includes(slot, version, received, self.active, self.changes)
        }


def test_so_many_devices_are_invited_and_each_version_invites_others() -> None:
    crowd = Crowd(100, 10)
    rounds = [crowd.of(version) for version in range(50)]
    assert {len(cohort) for cohort in rounds} == {10}
    assert len(set.union(*rounds)) > 90, "nobody is left out for long: 100 (1 - 0.9^50) = 99.5 are expected"


def test_the_choice_is_not_to_be_foreseen_without_the_secret() -> None:
    slots = range(100)
    assert by_hash(b"secret")(0, slots)[:10] != by_hash(b"another")(0, slots)[:10]
    assert by_hash(b"secret")(0, slots)[:10] != by_hash(b"secret")(1, slots)[:10]


def test_a_restart_invites_the_same_devices() -> None:
    crowd = Crowd(100, 10)
    before = crowd.of(7)
    crowd.restart()
    assert crowd.of(7) == before


def test_silent_devices_are_made_up_for_after_each_span_of_patience() -> None:
    crowd = Crowd(100, 10)
    first = crowd.of(0)
    crowd.now = 30.0
    assert crowd.of(0, received=4) == first, "patience lasts as long as it was said to"
    crowd.now = 30.1
    second = crowd.of(0, received=4)
    assert second > first and len(second) == 16
    assert crowd.of(0, received=4) == second, "once in a span"
    crowd.now = 60.2
    assert len(crowd.of(0, received=9)) == 17
    crowd.now = 90.3
    assert len(crowd.of(0, received=10)) == 17, "nobody is missing any more"
    assert len(crowd.of(1)) == 10, "the next version begins anew"


def test_newcomers_fill_a_round_that_lacks_devices() -> None:
    crowd = Crowd(2, 4)
    assert crowd.of(0) == {0, 1}
    crowd.join(2)
    assert crowd.of(0) == {0, 1, 2}
    for slot in (3, 4, 5):
        crowd.join(slot)
    assert len(crowd.of(0)) == 4 and crowd.of(0) >= {0, 1, 2}, "whoever was invited stays invited"


def test_a_device_that_leaves_is_made_up_for_like_a_silent_one() -> None:
    crowd = Crowd(20, 5)
    before = crowd.of(0)
    gone = min(before)
    crowd.leave(gone)
    assert crowd.of(0) == before - {gone}
    crowd.now = 30.1
    assert len(crowd.of(0)) >= 5


def test_a_crowd_smaller_than_a_round_is_invited_as_a_whole() -> None:
    crowd = Crowd(3, 10)
    assert [crowd.of(version) for version in range(3)] == [{0, 1, 2}] * 3


def test_slots_are_ordered_whatever_order_they_come_in() -> None:
    slots: Sequence[int] = [5, 3, 9, 1]
    assert by_hash(b"s")(3, slots) == by_hash(b"s")(3, sorted(slots))
