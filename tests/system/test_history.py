"""The checker itself: every kind of wrong history is found."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.system.history import Headers, History

TASK = "GET", "/v1/tasks/walk"


def shown(history: History, version: int, path: tuple[str, str] = TASK) -> None:
    asked = history.asked("operator", *path, b"")
    history.answered(asked, 200, [], json.dumps({"version": version, "check_ins": version}).encode())


def test_a_version_that_goes_back_is_found() -> None:
    history = History()
    for version in (1, 2, 2):
        shown(history, version)
    assert not history.violations
    shown(history, 1)
    assert len(history.violations) == 2


def test_an_answer_may_be_behind_those_that_were_given_while_it_was_on_its_way() -> None:
    history = History()
    early = history.asked("operator", *TASK, b"")
    shown(history, 5)
    history.answered(early, 200, [], b'{"version": 4, "check_ins": 4}')
    assert not history.violations


def test_a_version_with_two_models_is_found() -> None:
    history, headers = History(), [(b"crowdml-version", b"3")]
    for content in (b"one", b"one", b"two"):
        made: Headers = list(headers)
        history.answered(history.asked("device 0", "GET", "/v1/tasks/walk/check-out", b""), 200, made, content)
    assert history.violations == ["version 3 was another model before"]


def test_errors_of_the_server_are_found_but_being_busy_is_none() -> None:
    history = History()
    for status in (503, 500):
        history.answered(history.asked("device 0", "POST", "/v1/tasks/walk/check-ins", b""), status, [], b"{}")
    assert len(history.violations) == 1


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "crowd.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE tasks (version, check_ins); INSERT INTO tasks VALUES (2, 2);"
            'CREATE TABLE receipts (id INTEGER PRIMARY KEY, slot, "key", body, number, version, started);'
        )
    return path


@pytest.fixture
def device(tmp_path: Path) -> Path:
    folder = tmp_path / "device-0"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
        database.executescript("CREATE TABLE entries (number, raw); CREATE TABLE unsettled (key, body);")
    return folder


def charge(folder: Path, key: str, body: bytes) -> None:
    entry = json.dumps({"kind": "charge", "key": key, "body": hashlib.sha256(body).hexdigest()})
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
        database.execute("INSERT INTO entries VALUES (0, ?)", (entry,))
        database.execute("INSERT INTO unsettled VALUES (?, ?)", (key, body))
        database.commit()


def put(path: Path, key: str, body: bytes, number: int, version: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        values = (0, key, hashlib.sha256(body).digest(), number, version, version - 1)
        database.execute(
            'INSERT INTO receipts (slot, "key", body, number, version, started) VALUES (?,?,?,?,?,?)', values
        )
        database.commit()


def send(history: History, folder: Path, key: str, body: bytes) -> None:
    history.sent(folder, "POST", "/v1/tasks/walk/check-ins", {b"idempotency-key": key.encode()}, body)


def test_an_honest_course_is_right(server: Path, device: Path) -> None:
    history = History()
    for number, key in enumerate(("one", "two"), 1):
        charge(device, key, key.encode())
        send(history, device, key, key.encode())
        put(server, key, key.encode(), number, number)
    assert history.check_end(server, [device]) == 2
    assert not history.violations


def test_a_send_before_its_charge_is_found(server: Path, device: Path) -> None:
    history = History()
    send(history, device, "one", b"one")
    charge(device, "one", b"one")
    assert history.violations == ["one: sent before it was charged"]


def test_a_receipt_that_is_twice_or_was_never_charged_is_found(server: Path, device: Path) -> None:
    history = History()
    charge(device, "one", b"one")
    for number in (1, 2):
        put(server, "one", b"one", number, number)
    history.check_end(server, [device])
    assert history.violations == ["one: 2 receipts"]
    history = History()
    history.check_end(server, [device.parent / "device-0"])
    assert not [found for found in history.violations if "without" in found]
    put(server, "two", b"two", 3, 2)
    history.check_end(server, [device])
    assert "two: a receipt without its charge" in history.violations


def test_what_was_acknowledged_and_is_not_stored_is_found(server: Path) -> None:
    history = History()
    asked = history.asked("device 0", "POST", "/v1/tasks/walk/check-ins", b"")
    history.answered(asked, 200, [], b'{"key": "one", "number": 1, "version": 3}')
    history.check_stored(server)
    assert history.violations == ["version 3 was shown, and 2 is stored", "one: acknowledged, and lost or another"]


def test_a_receipt_in_the_slot_of_another_device_is_found(server: Path, device: Path, tmp_path: Path) -> None:
    other = tmp_path / "device-1"
    shutil.copytree(device, other)
    for folder, key in ((device, "one"), (other, "two")):
        charge(folder, key, key.encode())
    for number, key in enumerate(("one", "two"), 1):
        put(server, key, key.encode(), number, number)
    history = History()
    history.check_end(server, [device, other])
    assert history.violations == ["two: a receipt of device-1 in the slot of device-0"]


def test_a_receipt_that_another_device_is_given_is_found(server: Path, device: Path) -> None:
    history = History()
    charge(device, "one", b"one")
    put(server, "one", b"one", 1, 2)
    asked = history.asked("device 1", "POST", "/v1/tasks/walk/check-ins", b"")
    history.answered(asked, 200, [], b'{"key": "one", "number": 1, "version": 2}')
    history.check_end(server, [device])
    assert "one: acknowledged to device 1, who has not charged it" in history.violations


def test_statistics_that_do_not_add_up_are_found() -> None:
    history = History()
    for counted in (2, 1):
        told = {"version": 2, "check_ins": 2, "participation": [{"check_ins": 1}] * counted}
        told |= {"staleness": [{"check_ins": 2}, {"check_ins": 0}]}
        asked = history.asked("operator", "GET", "/v1/tasks/walk/statistics", b"")
        history.answered(asked, 200, [], json.dumps(told).encode())
    assert history.violations == ["participation of 1 check-ins, and there are 2"]
