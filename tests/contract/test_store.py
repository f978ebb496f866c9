"""What a store promises, in SQLite and in PostgreSQL alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from crowdml.core import BadInput
from crowdml.server.store import (
    Applied,
    Identity,
    Joined,
    NewDay,
    NewDevice,
    NewTask,
    Point,
    Receipt,
    Store,
    StoreConflict,
    StoredError,
    StoreFailed,
    open_store,
)


def new_task(name: str = "digits") -> NewTask:
    return NewTask(
        name=name,
        state="draft",
        file="text",
        signed_text=b"sheet",
        signature=b"\0sig",
        key=b"key",
        server_state=b"\0first",
    )


def new_device(name: str, key: bytes | None = None) -> NewDevice:
    return NewDevice(id=name, token_hash=f"token of {name}".encode(), public_key=key or name.encode(), joined=1.5)


def receipt(slot: int, key: str, number: int = 1, version: int = 1, started: int = 0) -> Receipt:
    return Receipt(
        slot=slot, key=key, body=key.encode(), number=number, version=version, started=started, status="applied"
    )


def batch(task: int, before: int, *receipts: Receipt, **changes: Any) -> Applied:
    """A batch after which version and check-ins have grown by the number of receipts."""
    after = before + len(receipts)
    batch: dict[str, Any] = {
        "task": task,
        "expected_version": before,
        "expected_check_ins": before,
        "version": after,
        "check_ins": after,
        "received": 0,
        "server_state": f"state {after}".encode(),
        "rows": {},
        "receipts": receipts,
    }
    return Applied(**batch | changes)


def join(store: Store, task: int, name: str, key: bytes | None = None) -> Joined:
    store.add_invites(task, [name.encode()])
    joined = store.use_invite(task, name.encode(), new_device(name, key))
    assert isinstance(joined, Joined)
    return joined


def at_once(count: int, work: Callable[[int], object]) -> list[Any]:
    """Do the same from many threads that start together."""
    gate, results = threading.Barrier(count), [None] * count

    def one(number: int) -> None:
        gate.wait()
        results[number] = work(number)  # type: ignore[call-overload]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.tasks() == []
    assert store.task("digits") is None
    assert store.identity() is None
    assert store.device("nobody") is None


def test_tasks_are_kept_as_they_were_given(store: Store) -> None:
    made = [store.create_task(new_task(name)) for name in ("digits", "activity")]
    assert store.tasks() == made
    assert store.task("activity") == made[1]
    assert (made[0].version, made[0].check_ins, made[0].received, made[0].slots) == (0, 0, 0, 0)
    assert made[0].server_state == b"\0first" and made[0].incarnation == 1


def test_a_name_is_given_once(store: Store) -> None:
    store.create_task(new_task())
    with pytest.raises(BadInput, match="already a task 'digits'"):
        store.create_task(new_task())
    assert len(store.tasks()) == 1


def test_the_operator_changes_the_state_of_one_task(store: Store) -> None:
    first, second = store.create_task(new_task("digits")), store.create_task(new_task("activity"))
    store.set_state(first.id, "stopped", "enough")
    found = store.tasks()
    assert (found[0].state, found[0].reason) == ("stopped", "enough")
    assert found[1] == second
    with pytest.raises(StoreConflict, match="no task"):
        store.set_state(99, "open")


def test_the_server_keeps_its_keys(store: Store) -> None:
    for identity in (
        Identity(signing_key=b"1" * 32, operator_token_hash=b"a" * 32),
        Identity(signing_key=b"2" * 32, operator_token_hash=b"b" * 32),
    ):
        store.set_identity(identity)
        assert store.identity() == identity


def test_a_device_joins_with_an_invite(store: Store) -> None:
    task = store.create_task(new_task()).id
    joined = join(store, task, "anna")
    assert not joined.again
    device = joined.device
    assert (device.id, device.slot, device.check_ins, device.last_version, device.revoked) == ("anna", 0, 0, -1, False)
    assert store.device("anna") == device
    join(store, task, "ben")
    assert [device.slot for device in store.devices(task)] == [0, 1]
    stored = store.task("digits")
    assert stored is not None and stored.slots == 2


def test_an_invite_is_good_for_one_device(store: Store) -> None:
    task, other = store.create_task(new_task()).id, store.create_task(new_task("activity")).id
    join(store, task, "anna")
    assert store.use_invite(task, b"anna", new_device("ben")) == "used"
    assert store.use_invite(task, b"unknown", new_device("ben")) == "unknown"
    assert store.use_invite(other, b"anna", new_device("ben")) == "unknown"
    store.add_invites(task, [b"fresh"])
    used = [store.invite_used(task, code) for code in (b"anna", b"fresh", b"unknown")]
    assert used == [True, False, None] and store.invite_used(other, b"anna") is None
    assert [device.id for device in store.devices(task)] == ["anna"] and store.devices(other) == []


def test_the_same_key_again_gets_a_new_token(store: Store) -> None:
    task = store.create_task(new_task()).id
    first = join(store, task, "anna", b"key").device
    again = store.use_invite(task, b"anna", new_device("another name", b"key"))
    assert isinstance(again, Joined) and again.again
    assert (again.device.id, again.device.slot) == ("anna", first.slot)
    assert again.device.token_hash == b"token of another name"
    assert store.devices(task) == [again.device]


def test_a_key_joins_once(store: Store) -> None:
    task, other = store.create_task(new_task()).id, store.create_task(new_task("activity")).id
    join(store, task, "anna", b"key")
    store.add_invites(task, [b"second"])
    assert store.use_invite(task, b"second", new_device("twin", b"key")) == "key-taken"
    # The invite is still good for somebody else, and the key for another task.
    assert isinstance(store.use_invite(task, b"second", new_device("ben")), Joined)
    assert join(store, other, "anna elsewhere", b"key").device.slot == 0


@pytest.mark.parametrize("same_key", [False, True])
def test_fifty_devices_race_for_one_invite(store: Store, same_key: bool) -> None:
    task = store.create_task(new_task()).id
    store.add_invites(task, [b"code"])

    def enter(number: int) -> object:
        return store.use_invite(task, b"code", new_device(f"d{number}", b"key" if same_key else None))

    answers = at_once(50, enter)
    winners = [answer for answer in answers if isinstance(answer, Joined) and not answer.again]
    assert len(winners) == 1
    (device,) = store.devices(task)
    assert device.id == winners[0].device.id
    stored = store.task("digits")
    assert stored is not None and stored.slots == 1
    if same_key:
        assert all(isinstance(answer, Joined) and answer.device.slot == 0 for answer in answers)
        assert device.token_hash in {answer.device.token_hash for answer in answers}
    else:
        assert sorted(map(str, answers), key=len)[:49] == ["used"] * 49


def test_a_revoked_device_cannot_come_back_with_its_invite(store: Store) -> None:
    task = store.create_task(new_task()).id
    before = join(store, task, "anna", b"key").device
    assert store.revoke("anna") and not store.revoke("nobody")
    assert store.use_invite(task, b"anna", new_device("anna", b"key")) == "used" and store.invite_used(task, b"anna")
    (device,) = store.devices(task)
    assert device.revoked and device.token_hash == before.token_hash


def test_a_batch_is_stored_as_a_whole(store: Store) -> None:
    task = store.create_task(new_task()).id
    join(store, task, "anna")
    join(store, task, "ben")
    point = Point(version=3, check_ins=3, rows=60, estimated_error=0.25, time=12.5)
    given = [receipt(0, "k1", 1, 1, 0), receipt(1, "k1", 1, 2, 0), receipt(0, "k2", 2, 3, 1)]
    store.apply(batch(task, 0, *given, received=2, rows={0: b"row", 1: b""}, point=point))
    stored = store.task("digits")
    assert stored is not None
    assert (stored.version, stored.check_ins, stored.received) == (3, 3, 2)
    assert (stored.server_state, stored.state, stored.reason) == (b"state 3", "draft", None)
    assert store.rows(task) == {0: b"row", 1: b""}
    assert store.points(task) == [point]
    assert [(device.check_ins, device.last_version) for device in store.devices(task)] == [(2, 1), (1, 0)]
    found = store.receipts_for(task, [(0, "k1"), (1, "k1"), (0, "k2"), (1, "k2"), (7, "k1")])
    assert set(found) == {(0, "k1"), (1, "k1"), (0, "k2")}
    assert found[0, "k2"] == replace(given[2], device="anna")
    assert store.receipts_for(task + 1, [(0, "k1")]) == {} == store.receipts_for(task, [])


def test_vectors_of_secure_sums_are_remembered_for_each_task(store: Store, url: str) -> None:
    first, second = (store.create_task(new_task(name)).id for name in ("one", "two"))
    assert store.vectors(first) == {}
    store.keep_vectors(first, {(0, 3): 1, (4, 2): 2})
    store.keep_vectors(second, {(0, 0): 1})
    store.keep_vectors(first, {(0, 3): 2})
    store.close()
    with open_store(url) as again:
        assert again.vectors(first) == {(0, 3): 2} and again.vectors(second) == {(0, 0): 1}
        again.keep_vectors(first, {})
        assert again.vectors(first) == {} and again.vectors(second) == {(0, 0): 1}


def test_refused_releases_are_counted_once_and_not_if_they_were_used_after_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = store.create_task(new_task()).id
    join(store, task, "anna")
    join(store, task, "ben")
    store.keep_refused(task, [(0, "k1"), (0, "k2"), (1, "k1"), (7, "k1")])
    store.keep_refused(task, [(0, "k1")])
    assert (store.refused(task, 0), store.refused(task, 1), store.refused(task, 7)) == (2, 1, 0)
    store.apply(batch(task, 0, receipt(0, "k2", 1, 1, 0)))
    assert store.refused(task, 0) == 1
    monkeypatch.setattr("crowdml.server.store.refused_releases.MOST", 3)
    store.keep_refused(task, [(1, f"more-{number}") for number in range(5)])
    assert store.refused(task, 1) == 3, "nobody fills the disk"
    assert store.withdraw("ben") and store.refused(task, 1) == 0


def test_a_batch_can_end_the_task(store: Store) -> None:
    task = store.create_task(new_task()).id
    store.apply(batch(task, 0, receipt(0, "k1"), state="stopped", reason="all versions were made"))
    store.apply(batch(task, 1))
    stored = store.task("digits")
    assert stored is not None and (stored.state, stored.reason) == ("stopped", "all versions were made")


def test_an_estimate_may_be_missing(store: Store) -> None:
    task = store.create_task(new_task()).id
    point = Point(version=1, check_ins=1, rows=0, estimated_error=None, time=1.0)
    store.apply(batch(task, 0, receipt(0, "k1"), point=point))
    assert store.points(task) == [point]


def test_a_day_begins_with_its_first_receipt_and_is_closed_by_the_next(store: Store) -> None:
    task, other = store.create_task(new_task()).id, store.create_task(new_task("other")).id
    store.apply(batch(other, 0, receipt(0, "k0")))
    first = NewDay(day=100, version=0, staleness="[0]")
    store.apply(batch(task, 0, receipt(0, "k1"), receipt(1, "k1", version=2), day=first))
    store.apply(batch(task, 2, receipt(0, "k2", 2, 3, 1)))
    (found,) = store.days(task)
    assert (found.day, found.version, found.staleness, found.check_ins, found.devices) == (100, 0, "[0]", None, None)
    assert store.log(task, found.first) == [(0, 1, 0), (1, 2, 0), (0, 3, 1)] == store.log(task)
    store.apply(batch(task, 3, receipt(1, "k3", 2, 4, 3), day=replace(first, day=101, version=3, over=(100, 3, 2))))
    before, now = store.days(task)
    assert (before.check_ins, before.devices) == (3, 2) and store.log(task, now.first) == [(1, 4, 3)]
    assert store.days(other) == []


def test_an_error_on_public_rows_is_kept_once_for_each_version(store: Store) -> None:
    task = store.create_task(new_task()).id
    for version, error in ((5, 0.5), (1, 0.75), (5, 0.1)):
        store.add_validation(task, StoredError(version=version, error=error, time=2.5))
    assert [(found.version, found.error) for found in store.validations(task)] == [(1, 0.75), (5, 0.5)]


@pytest.mark.parametrize("wrong", [{"expected_version": 1}, {"expected_check_ins": 1}, {"task": 99}])
def test_a_writer_that_is_behind_stores_nothing(store: Store, wrong: dict[str, int]) -> None:
    before = store.create_task(new_task())
    join(store, before.id, "anna")
    late = Applied(**vars(batch(before.id, 0, receipt(0, "k1"), rows={0: b"row"}, state="stopped")) | wrong)
    with pytest.raises(StoreConflict, match="not at version"):
        store.apply(late)
    stored = store.task("digits")
    assert stored is not None and (stored.version, stored.state, stored.server_state) == (0, "draft", b"\0first")
    assert store.receipts_for(before.id, [(0, "k1")]) == {} == store.rows(before.id)
    store.apply(batch(before.id, 0, receipt(0, "k1")))


def test_two_writers_cannot_both_apply(store: Store) -> None:
    task = store.create_task(new_task()).id

    def write(number: int) -> object:
        try:
            store.apply(batch(task, 0, receipt(number, f"k{number}")))
        except StoreConflict:
            return "conflict"
        return "stored"

    assert sorted(at_once(20, write)) == ["conflict"] * 19 + ["stored"]
    assert len(store.receipts_for(task, [(number, f"k{number}") for number in range(20)])) == 1


def test_a_key_is_counted_once(store: Store) -> None:
    task = store.create_task(new_task()).id
    join(store, task, "anna")
    store.apply(batch(task, 0, receipt(0, "k1")))
    with pytest.raises(StoreConflict, match="stored already"):
        store.apply(batch(task, 1, receipt(0, "k2", 2), receipt(0, "k1", 3), rows={0: b"row"}))
    stored = store.task("digits")
    assert stored is not None and stored.version == 1
    assert set(store.receipts_for(task, [(0, "k1"), (0, "k2")])) == {(0, "k1")}
    assert store.rows(task) == {} and store.devices(task)[0].check_ins == 1
    # The store goes on, and the places in its log are not mixed up.
    store.apply(batch(task, 1, receipt(0, "k2", 2)))
    assert [receipt.key for receipt in store.receipts("anna")] == ["k1", "k2"]


def test_keys_are_told_apart_exactly(store: Store) -> None:
    task = store.create_task(new_task()).id
    keys = ["aaaaaaaa", "AAAAAAAA", "aaaa-aaa", "aaaa_aaa", "aaaaaaaa-", "-" * 64]
    store.apply(batch(task, 0, *(receipt(0, key, number) for number, key in enumerate(keys, 1))))
    found = store.receipts_for(task, [(0, key) for key in [*keys, "aaaaaaaA", "a%aaaaaa"]])
    assert {key: receipt.number for (_, key), receipt in found.items()} == {key: n for n, key in enumerate(keys, 1)}


def test_receipts_come_back_as_they_were_given_however_many_and_whatever_they_hold(store: Store) -> None:
    task = store.create_task(new_task()).id
    join(store, task, "anna")
    join(store, task, "ben")
    bodies = (bytes(range(256)), b"", b"\\x00{,}\"NULL'", bytes(32))
    numbers = (1, 40_000, 1 << 31, 1 << 62)
    given: list[Receipt] = []
    for size in (1, 7, 300):
        more = [
            Receipt(
                slot=at % 2,
                key=f"NULL-{at}",
                body=bodies[at % 4],
                number=numbers[at % 4],
                version=numbers[-at % 4],
                started=numbers[at // 4 % 4] - 2,
                status=("applied", "queued")[at % 3 == 0],
            )
            for at in range(len(given), len(given) + size)
        ]
        store.apply(batch(task, len(given), *more))
        given += more
    found = store.receipts_for(task, [(each.slot, each.key) for each in given])
    assert found == {(each.slot, each.key): replace(each, device=("anna", "ben")[each.slot]) for each in given}


def test_any_number_of_keys_is_looked_up(store: Store) -> None:
    task = store.create_task(new_task()).id
    keys = [(number % 50, f"key-{number:05d}") for number in range(600)]
    store.apply(batch(task, 0, *(receipt(slot, key) for slot, key in keys[::2])))
    for count in (1, 7, 8, 9, 64, 65, 256, 257, 600):
        assert set(store.receipts_for(task, keys[:count])) == set(keys[:count:2])


def test_receipts_are_read_in_pages(store: Store) -> None:
    task, other = store.create_task(new_task()).id, store.create_task(new_task("activity")).id
    join(store, task, "anna")
    join(store, task, "ben")
    join(store, other, "carl")
    for at in range(0, 20, 4):
        mixed = [receipt(number % 2, f"k{number}", number // 2 + 1) for number in range(at, at + 4)]
        store.apply(batch(task, at, *mixed))
        store.apply(batch(other, at // 4, receipt(0, f"k{at}", at // 4 + 1)))
    assert [receipt.number for receipt in store.receipts("anna")] == list(range(1, 11))
    assert [receipt.key for receipt in store.receipts("ben", after=3, limit=3)] == ["k7", "k9", "k11"]
    assert store.receipts("ben", after=10) == [] == store.receipts("nobody")
    assert {receipt.device for receipt in store.receipts("carl")} == {"carl"} and len(store.receipts("carl")) == 5


def test_who_withdraws_is_forgotten(store: Store) -> None:
    task = store.create_task(new_task()).id
    join(store, task, "anna", b"key")
    join(store, task, "ben")
    store.apply(batch(task, 0, receipt(0, "k1"), receipt(1, "k2"), rows={0: b"mine", 1: b"other"}))
    assert store.withdraw("anna") and not store.withdraw("anna")
    assert store.device("anna") is None and store.receipts("anna") == []
    assert [device.id for device in store.devices(task)] == ["ben"] and store.rows(task) == {1: b"other"}
    # Its receipts stay, and name nobody; its invite stays used, its slot is never given again.
    found = store.receipts_for(task, [(0, "k1"), (1, "k2")])
    assert [found[0, "k1"].device, found[1, "k2"].device] == [None, "ben"]
    assert store.use_invite(task, b"anna", new_device("anna", b"key")) == "used"
    assert join(store, task, "anna again", b"key").device.slot == 2


def test_a_check_in_that_was_under_way_does_not_bring_the_withdrawn_back(store: Store) -> None:
    task = store.create_task(new_task()).id
    join(store, task, "anna")
    store.withdraw("anna")
    store.apply(batch(task, 0, receipt(0, "k1"), rows={0: b"mine"}))
    assert store.rows(task) == {} and store.devices(task) == []
    assert store.receipts_for(task, [(0, "k1")])[0, "k1"].device is None


def test_everything_is_there_after_opening_again(store: Store, url: str) -> None:
    task = store.create_task(new_task()).id
    join(store, task, "anna")
    for at in range(5):
        store.apply(batch(task, at, receipt(0, f"k{at}", at + 1, at + 1, at), rows={0: bytes([at])}))
    before = (store.tasks(), store.devices(task), store.rows(task), store.receipts("anna"))
    store.close()
    store.close()
    with open_store(url) as again:
        assert (again.tasks(), again.devices(task), again.rows(task), again.receipts("anna")) == before
        again.apply(batch(task, 5, receipt(0, "k5", 6)))
        assert [receipt.number for receipt in again.receipts("anna")] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(StoreFailed, match="closed"):
        store.tasks()


def test_one_server_at_a_time(store: Store, url: str) -> None:
    with pytest.raises(BadInput, match=r"another server has .* open"):
        open_store(url)
    store.create_task(new_task())
    store.close()
    with open_store(url) as second:
        assert len(second.tasks()) == 1
