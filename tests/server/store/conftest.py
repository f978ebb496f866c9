"""What tests of the store need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdml.server.store import Applied, NewDevice, NewTask, Receipt, Store, open_store


class Crowd:
    """A task with devices that check in one after another."""

    def __init__(self, store: Store, devices: int = 2, name: str = "digits") -> None:
        self.store, self.count, self.numbers = store, 0, [0] * devices
        task = NewTask(name=name, state="open", file="", signed_text=b"", signature=b"", key=b"", server_state=b"first")
        self.task = store.create_task(task).id
        store.add_invites(self.task, [bytes([slot]) for slot in range(devices)])
        for slot in range(devices):
            device = f"{name}-device-{slot}"
            new = NewDevice(id=device, token_hash=b"token", public_key=f"public {device}".encode(), joined=1.0)
            store.use_invite(self.task, bytes([slot]), new)

    def check_in(self, size: int = 1, rows: bool = False, state: bytes = b"state") -> Applied:
        """Store a batch in which devices take turns."""
        before, new = self.count, []
        for number in range(before, before + size):
            slot = number % len(self.numbers)
            self.numbers[slot] += 1
            new.append(
                Receipt(
                    slot=slot,
                    key=f"key-{number:06d}",
                    body=b"\0" * 32,
                    number=self.numbers[slot],
                    version=number + 1,
                    started=number,
                    status="applied",
                )
            )
        done = Applied(
            task=self.task,
            expected_version=before,
            expected_check_ins=before,
            version=before + size,
            check_ins=before + size,
            received=0,
            server_state=state,
            rows={receipt.slot: f"private row {receipt.slot} ".encode() * 400 for receipt in new} if rows else {},
            receipts=new,
        )
        self.store.apply(done)
        self.count += size
        return done


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "crowd.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{path}") as opened:
        yield opened


@pytest.fixture
def crowd(store: Store) -> Crowd:
    return Crowd(store)
