"""What the event log and the operator's sessions promise, in SQLite and in PostgreSQL alike."""

from __future__ import annotations

from typing import Any

import pytest

from crowdml.server.store import Identity, NewDevice, NewTask, Store, StoredSession, event_log
from crowdml.server.store.session_tables import MOST_SESSIONS


def make_task(store: Store, name: str = "digits") -> int:
    signed = {"file": "text", "signed_text": b"", "signature": b"", "key": b"", "server_state": b""}
    return store.create_task(NewTask(name=name, state="draft", **signed)).id  # type: ignore[arg-type]


def join(store: Store, task: int, name: str) -> None:
    store.add_invites(task, [name.encode()])
    store.use_invite(task, name.encode(), NewDevice(id=name, token_hash=b"t", public_key=name.encode(), joined=1.5))


def told(store: Store, **which: Any) -> list[tuple[str, str, str | None, int | None, int]]:
    return [(e.actor, e.action, e.task, e.slot, e.count) for e in reversed(store.events(**which))]


def session(token: bytes, made: float = 1.0, expires: float = 1e12) -> StoredSession:
    return StoredSession(token_hash=token, made=made, expires=expires)


def test_what_happens_to_a_task_is_in_its_log(store: Store) -> None:
    first, second = make_task(store), make_task(store, "walk")
    store.set_state(first, "open", by="portal")
    join(store, first, "anna")
    store.revoke("anna")
    assert not store.revoke("nobody")
    expected = [
        ("operator", "created", "digits", None, 1),
        ("portal", "opened", "digits", None, 1),
        ("operator", "invited", "digits", None, 1),
        ("device", "joined", "digits", 0, 1),
        ("operator", "revoked", "digits", 0, 1),
    ]
    assert told(store, task=first) == expected and len(told(store)) == 6
    assert told(store, task=second) == [("operator", "created", "walk", None, 1)]


def test_pages_of_the_log_follow_each_other(store: Store) -> None:
    task = make_task(store)
    for state in ("open", "paused") * 5:
        store.set_state(task, state)
    whole = store.events()
    first = store.events(most=4)
    rest = store.events(before=first[-1].id)
    assert first + rest == whole and len(whole) == 11


def test_who_withdraws_is_no_longer_in_the_log(store: Store) -> None:
    task = make_task(store)
    join(store, task, "anna")
    join(store, task, "ben")
    store.withdraw("anna")
    about = [(action, slot) for _, action, _, slot, _ in told(store) if action in ("joined", "withdrew")]
    assert about == [("joined", None), ("joined", 1), ("withdrew", None)]


def test_what_strangers_repeat_is_counted_within_an_hour(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("crowdml.server.store.event_log.time.time", lambda: now[0])
    for _ in range(50):
        store.note("stranger", "refused sign-in", count=2)
    now[0] += event_log.HOUR_S + 1
    store.note("stranger", "refused sign-in")
    assert told(store) == [("stranger", "refused sign-in", None, None, count) for count in (100, 1)]


def test_the_oldest_entries_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MOST_ENTRIES", 3)
    for number in range(6):
        store.note("operator", "made a backup", detail=str(number))
    assert [event.detail for event in store.events()] == ["5", "4", "3"]


def test_an_entry_is_one_line_that_no_terminal_obeys(store: Store) -> None:
    store.note("server", "stopped", detail="one\nforged entry\r\x1b[2J" + "x" * 1000 + "\u202e")
    (found,) = store.events()
    assert found.detail.isprintable() and len(found.detail) == event_log.LONGEST_DETAIL


def test_sessions_end_one_by_one_or_with_the_token(store: Store) -> None:
    store.set_identity(Identity(signing_key=b"key", operator_token_hash=b"old"))
    for token in (b"a", b"b", b"c"):
        store.add_session(session(token))
    store.end_session(b"b")
    store.end_session(b"unknown")
    assert [each.token_hash for each in store.sessions()] == [b"a", b"c"]
    store.rotate(b"new", by="portal")
    found = store.identity()
    assert store.sessions() == [] and found is not None
    assert (found.signing_key, found.operator_token_hash) == (b"key", b"new")
    actions = [action for _, action, *_ in told(store)]
    assert actions == ["signed in"] * 3 + ["signed out", "changed the token"]


def test_there_are_never_many_sessions(store: Store) -> None:
    store.add_session(session(b"over", made=0.0, expires=5.0))
    for number in range(MOST_SESSIONS + 5):
        store.add_session(session(b"%d" % number, made=10.0 + number))
    kept = store.sessions()
    assert len(kept) == MOST_SESSIONS and kept[-1].token_hash == b"%d" % (MOST_SESSIONS + 4)
    assert b"over" not in [each.token_hash for each in kept]
