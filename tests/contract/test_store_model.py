"""Random sequences of operations: the store says the same as a plain model in memory, whatever happens in between."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from crowdml.server.store import (
    Applied,
    Joined,
    NewDevice,
    NewTask,
    Point,
    Receipt,
    Store,
    StoreConflict,
    StoredDevice,
    batch_writes,
    open_store,
)

FEW = st.integers(0, 4)
KEYS = [f"{number:08d}" for number in range(40)]
APPLY = st.tuples(
    st.just("apply"),
    st.lists(st.tuples(FEW, st.sampled_from(KEYS)), max_size=3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 0, 0, 0, 1]),
)
JOIN = st.tuples(st.just("join"), FEW, FEW)
OPERATIONS = st.lists(
    st.one_of(
        APPLY,
        APPLY,
        APPLY,
        APPLY,
        JOIN,
        JOIN,
        st.tuples(st.just("invite")),
        st.tuples(st.just("revoke"), FEW),
        st.tuples(st.just("withdraw"), FEW),
        st.tuples(st.just("state"), st.sampled_from(["open", "paused", "stopped"])),
        st.tuples(st.just("reopen")),
    ),
    min_size=10,
    max_size=30,
)


class Model:
    """What should be stored of one task."""

    def __init__(self, task: int) -> None:
        self.task, self.version, self.check_ins, self.slots = task, 0, 0, 0
        self.state, self.server_state = "draft", b"first"
        self.invites: dict[int, StoredDevice | str | None] = {}
        self.devices: dict[str, StoredDevice] = {}
        self.receipts: dict[tuple[int, str], Receipt] = {}
        self.rows: dict[int, bytes] = {}
        self.points: list[Point] = []
        self.names = 0

    def device(self, number: int) -> str:
        """Return the name of one of the devices, or of nobody."""
        names = sorted(self.devices)
        return names[number] if number < len(names) else "nobody"

    def owner(self, slot: int) -> StoredDevice | None:
        return next((device for device in self.devices.values() if device.slot == slot), None)

    def join(self, invite: int, device: NewDevice) -> tuple[str, bool]:
        """Return the name under which it is in now and whether it was in before; or why it is not."""
        if invite not in self.invites:
            return "unknown", False
        user = self.invites[invite]
        if user is not None:
            known = self.devices.get(user) if isinstance(user, str) else None
            if known is None or known.public_key != device.public_key or known.revoked:
                return "used", False
            self.devices[known.id] = dataclasses.replace(known, token_hash=device.token_hash)
            return known.id, True
        if any(other.public_key == device.public_key for other in self.devices.values()):
            return "key-taken", False
        self.invites[invite] = device.id
        self.devices[device.id] = StoredDevice(
            **vars(device), task=self.task, slot=self.slots, revoked=False, check_ins=0, last_version=-1
        )
        self.slots += 1
        return device.id, False

    def apply(self, done: Applied) -> bool:
        keys = [(receipt.slot, receipt.key) for receipt in done.receipts]
        if done.expected_version != self.version or len(set(keys)) < len(keys) or set(keys) & set(self.receipts):
            return False
        self.version, self.check_ins, self.server_state = done.version, done.check_ins, done.server_state
        for receipt in done.receipts:
            self.receipts[receipt.slot, receipt.key] = receipt
            if device := self.owner(receipt.slot):
                changed = dataclasses.replace(device, check_ins=receipt.number, last_version=receipt.started)
                self.devices[device.id] = changed
        self.rows |= {slot: row for slot, row in done.rows.items() if self.owner(slot)}
        if done.point:
            self.points = [point for point in self.points if point.check_ins != done.check_ins] + [done.point]
        return True

    def withdraw(self, name: str) -> bool:
        gone = self.devices.pop(name, None)
        if gone:
            self.rows.pop(gone.slot, None)
        return gone is not None


class Driver:
    """Does the same to a store and to a model, and compares."""

    def __init__(self, url: str, store: Store, name: str) -> None:
        self.url, self.store, self.name = url, store, name
        task = NewTask(
            name=name, state="draft", file="", signed_text=b"", signature=b"", key=b"", server_state=b"first"
        )
        self.model = Model(store.create_task(task).id)

    def invite(self) -> None:
        number = len(self.model.invites)
        self.store.add_invites(self.model.task, [str(number).encode()])
        self.model.invites[number] = None

    def join(self, invite: int, key: int) -> None:
        self.model.names += 1
        name = f"{self.name}-{self.model.names:03d}"
        device = NewDevice(id=name, token_hash=name.encode(), public_key=b"key" * key + b"!", joined=float(key))
        found = self.store.use_invite(self.model.task, str(invite).encode(), device)
        told = (found.device.id, found.again) if isinstance(found, Joined) else (found, False)
        assert told == self.model.join(invite, device)
        if isinstance(found, Joined):
            assert found.device == self.model.devices[found.device.id]

    def revoke(self, number: int) -> None:
        name = self.model.device(number)
        assert self.store.revoke(name) == (name in self.model.devices)
        if name in self.model.devices:
            self.model.devices[name] = dataclasses.replace(self.model.devices[name], revoked=True)

    def withdraw(self, number: int) -> None:
        name = self.model.device(number)
        assert self.store.withdraw(name) == self.model.withdraw(name)

    def state(self, state: str) -> None:
        self.store.set_state(self.model.task, state)
        self.model.state = state

    def apply(self, wanted: list[tuple[int, str]], with_rows: bool, with_point: bool, behind: int) -> None:
        model = self.model
        # Only who has joined checks in; some have left since.
        wanted = [(slot % model.slots, key) for slot, key in wanted] if model.slots else []
        seen = [receipt.slot for receipt in model.receipts.values()]
        new = []
        for slot, key in wanted:
            seen.append(slot)
            new.append(
                Receipt(
                    slot=slot,
                    key=key,
                    body=key.encode() * 4,
                    number=seen.count(slot),
                    version=model.version + 1,
                    started=model.version,
                    status="applied",
                )
            )
        check_ins = model.check_ins + len(new)
        point = Point(version=model.version + 1, check_ins=check_ins, rows=7, estimated_error=None, time=0.5)
        done = Applied(
            task=model.task,
            expected_version=model.version - behind,
            expected_check_ins=model.check_ins,
            version=model.version + 1,
            check_ins=check_ins,
            received=0,
            server_state=f"state {model.version + 1}".encode(),
            rows={slot: key.encode() for slot, key in wanted} if with_rows else {},
            receipts=new,
            point=point if with_point else None,
        )
        if model.apply(done):
            self.store.apply(done)
        else:
            with pytest.raises(StoreConflict):
                self.store.apply(done)

    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.url)

    def compare(self) -> None:
        store, model = self.store, self.model
        task = store.task(self.name)
        assert task is not None
        assert (task.version, task.check_ins, task.slots) == (model.version, model.check_ins, model.slots)
        assert (task.state, task.server_state) == (model.state, model.server_state)
        assert store.devices(model.task) == sorted(model.devices.values(), key=lambda device: device.slot)
        assert store.rows(model.task) == model.rows
        assert store.points(model.task) == model.points
        owners = {device.slot: device.id for device in model.devices.values()}
        expected = {
            place: dataclasses.replace(receipt, device=owners.get(receipt.slot))
            for place, receipt in model.receipts.items()
        }
        every = [(slot, key) for slot in range(6) for key in KEYS]
        assert store.receipts_for(model.task, every) == expected
        for name in owners.values():
            kept = [receipt for receipt in expected.values() if receipt.device == name]
            assert store.receipts(name) == sorted(kept, key=lambda receipt: receipt.number)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write the counters after every few receipts, so that reopening meets them before, after and in between."""
    monkeypatch.setattr(batch_writes, "EVERY", 4)
    yield


@pytest.mark.usefixtures("often")
# Without shrinking, which would take minutes on a disk that is synchronised after every operation.
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
@given(operations=OPERATIONS)
def test_the_store_agrees_with_a_model(url: str, operations: list[tuple[Any, ...]]) -> None:
    # The database is the same for all examples; each has a task of its own among those of the others.
    store = open_store(url)
    driver = Driver(url, store, f"task-{len(store.tasks())}")
    try:
        for _ in range(3):
            driver.invite()
        driver.join(0, 0)
        for name, *arguments in operations:
            getattr(driver, name)(*arguments)
            driver.compare()
        driver.reopen()
        driver.compare()
    finally:
        driver.store.close()
