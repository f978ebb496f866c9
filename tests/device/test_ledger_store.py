"""The ledger on disk: what is stored before a send, and what a file that was changed is worth."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import crowdml
from crowdml.core import BadInput
from crowdml.core.errors import BudgetExhausted, TermsViolated
from crowdml.device import Ledger
from crowdml.privacy import Event, Filter, Promise
from crowdml.privacy.ledger.entries import AcceptedTerms


def terms(uses: int = 3) -> AcceptedTerms:
    limit = Filter(kind="pure", epsilon=0.5 * uses, delta=0.0)
    return AcceptedTerms(unit="sample", filter=limit, uses=uses, event=Event.of_pure(0.5))


def test_a_ledger_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with crowdml.Ledger(path) as ledger:
        ledger.accept("task", "hash", terms())
        assert ledger.charge("task", "a", b"one", samples=np.array([0, 1]), version=4) == b"one"
        head = ledger.chain.head
    with Ledger(path) as ledger:
        assert ledger.chain.head == head and ledger.spent("task") == Promise(epsilon=0.5)
        ledger.accept("task", "hash", terms())  # the same one again
        for key in ("b", "c"):
            ledger.charge("task", key, b"more", samples=np.array([1]), version=5)
        with pytest.raises(BudgetExhausted):
            ledger.charge("task", "d", b"too much", samples=np.array([1]), version=6)
        assert len(ledger.entries()) == 4


def test_the_bytes_are_kept_until_they_are_settled_and_a_resend_is_free(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.accept("task", "hash", terms())
        ledger.charge("task", "a", b"one", samples=np.array([0]), version=0)
        ledger.charge("task", "b", b"two", samples=np.array([1]), version=0)
    with Ledger(path) as ledger:
        waiting = ledger.unsettled()
        assert [(unsettled.key, unsettled.body) for unsettled in waiting] == [("a", b"one"), ("b", b"two")]
        for unsettled in waiting:
            ledger.charge(unsettled.task, unsettled.key, unsettled.body, samples=np.array([0]), version=0)
        assert len(ledger.entries()) == 3 and ledger.spent("task").epsilon == 0.5
        with pytest.raises(TermsViolated):
            ledger.charge("task", "a", b"drawn anew", samples=np.array([0]), version=0)
        ledger.settle("a")
        assert [unsettled.key for unsettled in ledger.unsettled()] == ["b"]


def test_a_release_that_is_made_anew_is_charged_anew(tmp_path: Path) -> None:
    """From the same version, of the same samples: other bytes are another release, and cost as much."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.accept("task", "hash", terms())
        for number, key in enumerate(("a", "b", "c"), start=1):
            ledger.charge("task", key, b"drawn anew " + key.encode(), samples=np.array([0]), version=0)
            assert ledger.spent("task").epsilon == 0.5 * number and len(ledger.entries()) == number + 1
        with pytest.raises(BudgetExhausted):
            ledger.charge("task", "d", b"once more", samples=np.array([0]), version=0)


def test_entries_of_another_format_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.accept("task", "hash", terms())
    for number, shown in ((0, 1), (4, 4)):  # 0: from before files said it
        file = sqlite3.connect(path, isolation_level=None)
        file.execute(f"PRAGMA user_version = {number}")
        file.close()
        with pytest.raises(BadInput, match=f"its entries have format {shown}, and 2 and 3 are read here"):
            Ledger(path)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.accept("task", "hash", terms())
        for key in ("a", "b"):
            ledger.charge("task", key, key.encode(), samples=np.array([0]), version=0)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM entries WHERE number = 1")
    db.close()
    with pytest.raises(TermsViolated, match="not the one that was written"):
        Ledger(path)


def test_two_processes_cannot_both_write(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as one, Ledger(path) as other:
        one.accept("task", "hash", terms())
        with pytest.raises(TermsViolated, match="another process"):
            other.accept("task", "hash", terms())


def test_a_failed_write_ends_the_ledger(tmp_path: Path) -> None:
    """Whether the entry reached the disk is not known, so this object must not go on counting."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.accept("task", "hash", terms())
        ledger._db.execute("DROP TABLE unsettled")
        with pytest.raises(sqlite3.OperationalError):
            ledger.charge("task", "a", b"one", samples=np.array([0]), version=0)
        with pytest.raises(sqlite3.ProgrammingError):
            ledger.charge("task", "b", b"two", samples=np.array([1]), version=0)


def test_full_synchronous_is_asserted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(sqlite3.Connection):
        def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
            return super().execute(statement.replace("= FULL", "= NORMAL"), *arguments)  # type: ignore[arg-type]

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: real(path, factory=Careless, **options))
    with pytest.raises(Exception, match="cannot be written safely"):
        Ledger(tmp_path / "ledger.sqlite")


def test_a_long_ledger_is_read_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    body, samples = os.urandom(300), np.arange(70)
    with Ledger(path) as ledger:
        ledger._db.execute("PRAGMA synchronous = OFF")  # nothing is killed here
        ledger.accept("task", "hash", terms(uses=400))
        for number in range(2000):
            ledger.charge("task", f"key-{number}", body, samples=samples + number % 5 * 70, version=number)
            ledger.settle(f"key-{number}")
    with Ledger(path) as again, pytest.raises(BudgetExhausted):
        again.charge("task", "one too many", body, samples=samples, version=2000)


def test_numbers_of_samples_that_were_changed_are_refused(tmp_path: Path) -> None:
    """Uses are counted from these numbers: a damaged one would let a sample in once too often."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.accept("task", "hash", terms())
        ledger.charge("task", "a", b"one", samples=np.array([0, 1]), version=0)
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE entries SET samples = ? WHERE samples IS NOT NULL", (np.array([0, 9], "<i4").tobytes(),)
        )
    database.close()
    with pytest.raises(TermsViolated, match="not those that were charged"):
        Ledger(path)


def test_the_same_task_with_another_cost_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.accept("task", "hash", terms())
        ledger.accept("task", "hash", terms())
        limit = Filter(kind="pure", epsilon=1.5, delta=0.0)
        with pytest.raises(TermsViolated):
            ledger.accept("task", "hash", AcceptedTerms(unit="sample", filter=limit, uses=3, event=Event.of_pure(0.25)))


def written(path: Path, keys: str = "abc") -> None:
    with Ledger(path) as ledger:
        ledger.accept("task", "hash", terms(uses=50))
        for key in keys:
            ledger.charge("task", key, key.encode(), samples=np.array([0]), version=0)


def change(path: Path, statement: str, *values: int) -> None:
    with sqlite3.connect(path) as database:
        database.execute(statement, values)
    database.close()


def head_of(path: Path) -> Path:
    return path.with_name(path.name + "-head")


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_cut_end_is_noticed(tmp_path: Path, left: int) -> None:
    path = tmp_path / "ledger.sqlite"
    written(path)
    change(path, "DELETE FROM entries WHERE number >= ?", left)
    with pytest.raises(TermsViolated, match=f"{left} entries are there, 4 were written; the end was cut off"):
        Ledger(path)


def test_an_old_copy_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    written(path, "a")
    copy = path.read_bytes()
    written(path, "b")
    path.write_bytes(copy)
    with pytest.raises(TermsViolated, match="2 entries are there, 3 were written"):
        Ledger(path)
    path.unlink()
    with pytest.raises(TermsViolated, match="0 entries are there, 3 were written"):
        Ledger(path)


def test_another_ledger_in_the_place_of_the_first_is_noticed(tmp_path: Path) -> None:
    """As many entries or more, but not those: the noted hash is not among them."""
    path, other = tmp_path / "ledger.sqlite", tmp_path / "other.sqlite"
    written(path, "abc")
    written(other, "xyzu")
    path.write_bytes(other.read_bytes())
    with pytest.raises(TermsViolated, match="of another ledger"):
        Ledger(path)


def test_an_old_copy_of_both_files_is_left_to_the_servers_mirror(tmp_path: Path) -> None:
    """What cannot be noticed here is stated, not hidden: this test is the statement."""
    path = tmp_path / "ledger.sqlite"
    written(path, "a")
    copies = path.read_bytes(), head_of(path).read_bytes()
    written(path, "b")
    path.write_bytes(copies[0])
    head_of(path).write_bytes(copies[1])
    with Ledger(path) as ledger:
        assert ledger.chain.length == 2


def test_a_file_whose_names_are_no_text_is_damaged(tmp_path: Path) -> None:
    """SQLite names what it cannot read, in words that Python then cannot decode."""
    path = tmp_path / "ledger.sqlite"
    written(path)
    with closing(sqlite3.connect(path)) as plain:
        plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes().replace(b"entries", b"entri\xcc("))
    with pytest.raises(TermsViolated, match="is damaged"):
        Ledger(path)


def test_a_missing_or_damaged_head_is_refused_once_there_are_entries(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    written(path)
    head = head_of(path).read_bytes()
    head_of(path).write_bytes(bytes(len(head)))
    with pytest.raises(TermsViolated, match="is damaged"):
        Ledger(path)
    head_of(path).unlink()
    with pytest.raises(TermsViolated, match="is missing"):
        Ledger(path)
    assert not head_of(path).exists(), "opening again must not make it whole"


@pytest.mark.parametrize("place", [0, 1])
def test_a_torn_head_says_less_but_is_no_alarm(tmp_path: Path, place: int) -> None:
    path = tmp_path / "ledger.sqlite"
    written(path)
    raw = bytearray(head_of(path).read_bytes())
    raw[512 * place + 20] ^= 1
    head_of(path).write_bytes(raw)
    with Ledger(path) as ledger:
        assert ledger.chain.length == 4
        ledger.charge("task", "d", b"more", samples=np.array([1]), version=0)
    change(path, "DELETE FROM entries WHERE number = 4")
    with pytest.raises(TermsViolated, match="4 entries are there, 5 were written"):
        Ledger(path)


def test_a_ledger_that_is_ahead_of_its_head_is_whole(tmp_path: Path) -> None:
    """A crash between the two writes; the head catches up on opening."""
    path = tmp_path / "ledger.sqlite"
    written(path, "a")
    head = head_of(path).read_bytes()
    written(path, "b")
    head_of(path).write_bytes(head)
    Ledger(path).close()
    assert int.from_bytes(max(head_of(path).read_bytes()[:8], head_of(path).read_bytes()[512:520]), "little") == 3


def test_a_closed_task_is_freed_only_in_public(tmp_path: Path) -> None:
    for public, reserved in ((True, 0.5), (False, 25.0)):
        path = tmp_path / f"{public}.sqlite"
        written(path, "a")
        with Ledger(path) as ledger:
            ledger.close_task("task", public=public)
        with Ledger(path) as ledger:
            assert ledger.chain.tasks["task"].reserved() == Promise(epsilon=reserved)
