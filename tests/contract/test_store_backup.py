"""Backup and restore, in SQLite and PostgreSQL and from one to the other."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crowdml.cli.app import app
from crowdml.core import BadInput
from crowdml.core.keys import SigningKey
from crowdml.server.store import (
    Applied,
    Identity,
    NewDevice,
    NewTask,
    Point,
    Receipt,
    Store,
    open_store,
)
from crowdml.server.store.backups import backup, restore
from crowdml.wire.signed_task import Restored, SignedTask, TaskDocument, sign_task

KEY = SigningKey(b"k" * 32)


def fill(store: Store, check_ins: int = 3) -> None:
    """Store something in every table."""
    store.set_identity(Identity(signing_key=KEY.secret, operator_token_hash=b"h" * 32))
    for name in ("digits", "activity"):
        made = sign_task(TaskDocument(task=name, incarnation=1, definition={"name": name}, arrays=()), KEY)
        signed = {"signed_text": made.text, "signature": made.signature, "key": made.key}
        task = store.create_task(NewTask(name=name, state="open", file="text", server_state=b"\0", **signed)).id  # type: ignore[arg-type]
        store.add_invites(task, [b"used", b"free"])
        store.use_invite(task, b"used", NewDevice(id=name, token_hash=b"t", public_key=b"p", joined=2.5))
        for number in range(check_ins):
            store.apply(one_more(task, number))


def one_more(task: int, before: int) -> Applied:
    after = before + 1
    receipt = Receipt(
        slot=0, key=f"key-{after:05d}", body=b"b" * 32, number=after, version=after, started=before, status="applied"
    )
    return Applied(
        task=task,
        expected_version=before,
        expected_check_ins=before,
        version=after,
        check_ins=after,
        received=0,
        server_state=f"state {after}".encode(),
        rows={0: f"row {after}".encode()},
        receipts=[receipt],
        point=Point(version=after, check_ins=after, rows=20, estimated_error=None, time=float(after)),
    )


def everything(store: Store) -> dict[str, Any]:
    """Return all that can be asked, but for what a restore changes."""
    found: dict[str, Any] = {"identity": store.identity()}
    for task in store.tasks():
        described = {
            name: value for name, value in vars(task).items() if name not in ("incarnation", "signed_text", "signature")
        }
        found[task.name] = (
            described,
            store.devices(task.id),
            store.rows(task.id),
            store.points(task.id),
            store.receipts(task.name),
        )
    return found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a second database, where a backup is brought to."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/other.sqlite"
    address: str = request.getfixturevalue("second_database")
    return address


@pytest.fixture
def second_database(postgres: Any) -> str:
    address: str = postgres.database()
    return address


def test_a_backup_brings_everything_back(store: Store, other: str, tmp_path: Path, url: str) -> None:
    fill(store)
    before = everything(store)
    backup(url, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("copy?*")) and not list(tmp_path.glob(".copy*"))
    assert restore(tmp_path / "copy", other) == {"digits": 2, "activity": 2}
    with open_store(other) as again:
        assert everything(again) == before
        # Used invites stay used, free ones are still good; the log goes on where it was.
        task = again.tasks()[0].id
        stranger = NewDevice(id="ben", token_hash=b"t", public_key=b"another", joined=3.0)
        assert again.use_invite(task, b"used", stranger) == "used"
        assert not isinstance(again.use_invite(task, b"free", stranger), str)
        again.apply(one_more(task, 3))
        assert [receipt.number for receipt in again.receipts("digits")] == [1, 2, 3, 4]


def test_the_newly_signed_task_says_the_incarnation_and_is_signed(store: Store, tmp_path: Path, url: str) -> None:
    fill(store)
    backup(url, tmp_path / "copy")
    target = f"sqlite:///{tmp_path}/restored.sqlite"
    restore(tmp_path / "copy", target)
    with open_store(target) as again:
        for task in again.tasks():
            signed = SignedTask(text=task.signed_text, signature=task.signature, key=task.key)
            notice = Restored(after=1, version=3)
            definition = {"name": task.name}
            expected = TaskDocument(task=task.name, incarnation=2, definition=definition, arrays=(), restored=notice)
            assert signed.open() == expected
            assert task.incarnation == 2 and task.key == KEY.public


def test_a_database_in_use_is_not_overwritten(store: Store, tmp_path: Path, url: str) -> None:
    fill(store)
    backup(url, tmp_path / "copy")
    with pytest.raises(BadInput, match="another server"):
        restore(tmp_path / "copy", url, force=True)


def test_what_is_there_is_overwritten_only_when_told(store: Store, tmp_path: Path, url: str) -> None:
    fill(store)
    before = everything(store)
    backup(url, tmp_path / "copy")
    store.apply(one_more(store.tasks()[0].id, 3))
    later = everything(store)
    store.close()
    with pytest.raises(BadInput, match=r"not empty[\s\S]*--force"):
        restore(tmp_path / "copy", url)
    with open_store(url) as still:
        assert everything(still) == later
    assert restore(tmp_path / "copy", url, force=True) == {"digits": 2, "activity": 2}
    with open_store(url) as again:
        assert everything(again) == before
    # The same backup once more: the number must not repeat, or devices would see a version go back within one.
    assert restore(tmp_path / "copy", url, force=True) == {"digits": 3, "activity": 3}


def test_tables_of_others_in_the_same_database_are_left_alone(
    store: Store, other: str, tmp_path: Path, url: str
) -> None:
    fill(store)
    for address in (url, other):
        with closing(open_store(address) if address == other else store) as opened:
            with opened._database.transaction() as cursor:
                cursor.execute("DROP TABLE IF EXISTS others")
                cursor.execute("CREATE TABLE others AS SELECT 7 AS x")
            if address == url:
                backup(url, tmp_path / "copy")
                with opened._database.transaction() as cursor:
                    cursor.execute("UPDATE others SET x = 8")
    for address, kept in ((url, 8), (other, 7)):
        restore(tmp_path / "copy", address, force=True)
        with open_store(address) as again, again._database.transaction() as cursor:
            cursor.execute("SELECT x FROM others")
            assert cursor.fetchall() == [(kept,)]
            cursor.execute("DROP TABLE others")


def test_who_left_since_the_backup_stays_out(store: Store, tmp_path: Path, url: str) -> None:
    fill(store)
    backup(url, tmp_path / "first")
    digits = store.tasks()[0].id
    ben = NewDevice(id="ben", token_hash=b"u", public_key=b"q", joined=3.0)
    assert not isinstance(store.use_invite(digits, b"free", ben), str)
    backup(url, tmp_path / "second")
    assert store.revoke("ben") and store.withdraw("activity")
    store.close()

    restore(tmp_path / "second", url, force=True)
    with open_store(url) as again:
        assert {device.id: device.revoked for device in again.devices(digits)} == {"digits": False, "ben": True}
        assert [list(again.devices(task.id)) for task in again.tasks() if task.name == "activity"] == [[]]
        assert all(receipt.device is None for receipt in again.receipts("activity"))
    # Who joined after the first backup has not left: the later backup brings the device back.
    restore(tmp_path / "first", url, force=True)
    restore(tmp_path / "second", url, force=True)
    with open_store(url) as again:
        assert {device.id: device.revoked for device in again.devices(digits)} == {"digits": False, "ben": False}


def test_a_backup_is_of_one_moment_while_the_server_works(store: Store, tmp_path: Path, url: str) -> None:
    fill(store, check_ins=0)
    task = store.tasks()[0].id
    enough = threading.Event()
    done = 0

    def work() -> None:
        nonlocal done
        while not enough.is_set():
            store.apply(one_more(task, done))
            done += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        acknowledged = []
        for number in range(5):
            acknowledged.append(done)
            backup(url, tmp_path / f"copy-{number}")
    finally:
        enough.set()
        thread.join()
    for number, least in enumerate(acknowledged):
        target = f"sqlite:///{tmp_path}/restored-{number}.sqlite"
        restore(tmp_path / f"copy-{number}", target)
        with open_store(target) as again:
            stored = again.tasks()[0]
            assert least <= stored.version <= done
            assert stored.server_state == (f"state {stored.version}".encode() if stored.version else b"\0")
            assert [point.version for point in again.points(task)] == list(range(1, stored.version + 1))
            assert again.devices(task)[0].check_ins == stored.version
    assert done > 0


def test_a_backup_never_replaces_a_file(store: Store, tmp_path: Path, url: str) -> None:
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(BadInput, match="there already"):
        backup(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


def test_a_backup_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "stranger.sqlite")) as file:
        file.execute("CREATE TABLE anything (x)")
    (tmp_path / "text").write_text("no database at all, but long enough to look like one" * 20)
    for name, reason in (("stranger.sqlite", "not a store"), ("text", "cannot be read"), ("missing", "no file")):
        with pytest.raises(BadInput, match=reason):
            backup(f"sqlite:///{tmp_path / name}", tmp_path / "copy")
        with pytest.raises(BadInput, match=reason):
            restore(tmp_path / name, f"sqlite:///{tmp_path}/new.sqlite")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["stranger.sqlite", "text"]


def test_a_backup_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    """SQLite names what it cannot read, in words that Python then cannot decode."""
    with closing(sqlite3.connect(tmp_path / "copy")) as file:
        file.execute("CREATE TABLE anything (x)")
    (tmp_path / "copy").write_bytes((tmp_path / "copy").read_bytes().replace(b"anything", b"anyth\xccn("))
    with pytest.raises(BadInput, match="cannot be read"):
        restore(tmp_path / "copy", f"sqlite:///{tmp_path}/new.sqlite")
    with pytest.raises(BadInput, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}/copy")


def test_a_damaged_backup_restores_nothing(store: Store, tmp_path: Path, url: str) -> None:
    fill(store)
    backup(url, tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as file:
        file.execute("UPDATE signed_tasks SET signed_text = signed_text || x'20'")
        file.commit()
    target = f"sqlite:///{tmp_path}/new.sqlite"
    with pytest.raises(Exception, match="signature"):
        restore(tmp_path / "copy", target)
    with open_store(target) as empty:
        assert empty.tasks() == [] and empty.identity() is None


def test_the_commands(store: Store, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store)
    before = everything(store)
    app(["backup", str(tmp_path / "copy"), "--db", url], standalone_mode=False)
    app(["restore", str(tmp_path / "copy"), "--home", str(tmp_path / "home")], standalone_mode=False)
    told = capsys.readouterr().err
    assert "backup: " in told and "restored: digits, incarnation 2" in told
    assert "revoked or withdrew since the backup is back" in told, "there was nothing to tell who"
    with open_store(f"sqlite:///{tmp_path}/home/crowdml.sqlite") as again:
        assert everything(again) == before
    app(["backup", str(tmp_path / "again"), "--home", str(tmp_path / "home")], standalone_mode=False)
    with pytest.raises(BadInput, match="not empty"):
        app(["restore", str(tmp_path / "again"), "--home", str(tmp_path / "home")], standalone_mode=False)
    app(["restore", str(tmp_path / "again"), "--home", str(tmp_path / "home"), "--force"], standalone_mode=False)
    told = capsys.readouterr().err
    assert "restored: activity, incarnation 3" in told and "is back" not in told
