"""A device sends its vector to as many attempts at one version as the terms name, whatever the server says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crowdml.core.errors import StaleCheckIn
from crowdml.core.keys import SigningKey
from crowdml.device.ledger_store import Unsettled
from crowdml.device.secure_sums import SumTaker
from crowdml.device.sending import Sender
from crowdml.device.server_connection import Answer
from crowdml.device.task_memory import Memory


def taker(memory: Memory, attempts: int, waits: list[str]) -> SumTaker:
    pause = SimpleNamespace(pause=lambda asked, tries, why: waits.append(why))
    live: Any = SimpleNamespace(
        task=SimpleNamespace(name="t"),
        form=lambda version: SimpleNamespace(masking=SimpleNamespace(attempts=attempts)),
    )
    member: Any = SimpleNamespace(key=SigningKey.make())
    calls: Any = SimpleNamespace(connection=pause)
    sender: Any = SimpleNamespace(live=live, member=member, calls=calls, memory=memory)
    nothing: Any = None
    return SumTaker(sender, nothing)


def test_a_version_has_as_many_attempts_as_the_terms_name_also_after_a_restart(tmp_path: Path) -> None:
    waits: list[str] = []
    for number in range(3):
        memory = Memory(tmp_path / "memory.sqlite")  # opened anew: the device was started again
        assert not taker(memory, 3, waits)._is_spent(7)
        memory.expect(f"key-{number}", 7, b"")
        memory.close()
    memory = Memory(tmp_path / "memory.sqlite")
    assert taker(memory, 3, waits)._is_spent(7)
    assert waits == ["all attempts at the sum of version 7 are spent"]
    assert not taker(memory, 3, waits)._is_spent(8)
    assert not taker(memory, 4, waits)._is_spent(7)
    memory.close()


def test_a_member_that_lost_its_place_waits_for_the_next_sum() -> None:
    """As one that was silent for too long, or was started again after its hello: it is no reason to end."""
    body = json.dumps({"error": {"code": "not-a-member", "message": "not any more"}}).encode()
    answer = Answer(status=422, headers={}, body=body)
    assert isinstance(answer.error(), StaleCheckIn)
    settled: list[str] = []
    memory: Any = SimpleNamespace(refused=settled.append)
    ledger: Any = SimpleNamespace(settle=settled.append, spent=lambda account: SimpleNamespace(epsilon=1.0))
    ledger.chain = SimpleNamespace(tasks={"t": SimpleNamespace(releases=1)})
    sender = object.__new__(Sender)
    member: Any = SimpleNamespace(account="t")
    sender.ledger, sender.memory, sender.member = ledger, memory, member
    outcome = sender.settle(Unsettled(key="key", task="t", body=b""), answer)
    assert (outcome.status, outcome.code) == ("refused", "not-a-member") and settled == ["key", "key"]
