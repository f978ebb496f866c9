"""What a member of a group tells its owner while it runs: who saw sums of its rows, and what was given up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from crowdml.device.slice_member import SliceTaker
from tests.support.group_bench import GroupBench
from tests.support.group_courses import TASK, TERMS


def test_the_owner_is_told_once_who_saw_sums_and_which_pass_began_again() -> None:
    lines: list[str] = []
    nobody: Any = SimpleNamespace(task_hash=TASK)
    taker = SliceTaker(nobody, nobody, TERMS, lines.append)
    bench = GroupBench()
    bench.run_to_a_cut()
    member = max(bench.members.values(), key=lambda each: len(each.guard.observers))
    taker._account(member)
    taker._account(member)
    assert lines == [f"{len(member.guard.observers)} other members have seen sums of these rows so far"]
    member.guard.passes_again += 1
    taker._account(member)
    assert len(lines) == 2 and "begins this pass again with the shared weights" in lines[1]
