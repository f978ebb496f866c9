"""What a device draws for its rows: kept before it is charged, charged before it is sent, never drawn again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from crowdml.core.errors import BudgetExhausted, TermsViolated
from crowdml.device.ledger_store import Ledger
from crowdml.device.rows.kept_columns import ReleasedRows
from crowdml.device.task_memory import Memory
from crowdml.privacy import ModelBounds, PrivacySettings, Releases, make_plan
from crowdml.privacy.ledger.entries import AcceptedTerms
from crowdml.privacy.sanitisers.first_sums import FirstCut

SIZE = 5
PLAN = make_plan(
    PrivacySettings(mode="sound", mechanism="gaussian", epsilon=6.0, delta=1e-6),
    Releases(sends="pieces", bound=1.0, label_epsilon=1.0, on_grid=True),
    ModelBounds(classes=3, first_sums=SIZE),
)
ROWS = np.random.default_rng(0).normal(size=(8, SIZE)).astype(np.float32)
LABELS = np.arange(8) % 3


class Bench:
    """A device's two files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self.ledger() as ledger:
            ledger.accept("pieces", "hash", AcceptedTerms.of(PLAN))

    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.sqlite")

    def memory(self) -> Memory:
        return Memory(self.folder / "memory.sqlite")

    def release(
        self,
        count: int = 8,
        sums: Callable[[np.ndarray], np.ndarray] = lambda rows: rows.T,
        kind: type[ReleasedRows] = ReleasedRows,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run a device once."""
        with self.ledger() as ledger, closing(self.memory()) as memory:
            return self.rows(ledger, memory, count, kind)(sums)

    def rows(
        self, ledger: Ledger, memory: Memory, count: int = 8, kind: type[ReleasedRows] = ReleasedRows
    ) -> ReleasedRows:
        digests = [hashlib.sha256(row.tobytes()).digest() for row in ROWS[:count]]
        numbers = memory.samples.of_table(digests)
        cut = PLAN.last
        assert isinstance(cut, FirstCut)
        found = ROWS[:count], LABELS[:count], numbers, memory.samples.numbering
        return kind(cut, memory.columns, ledger, "pieces", *found)

    def charged(self) -> list[int]:
        with self.ledger() as ledger:
            counts: list[int] = ledger.chain.tasks["pieces"].uses.counts().tolist()
            return counts


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)


def _same(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def test_later_runs_send_the_same_numbers_and_cost_nothing(bench: Bench) -> None:
    first = bench.release()
    assert bench.charged() == [1] * 8
    # Other weights of the first layer make other sums; what was drawn stays.
    assert _same(first, bench.release(sums=lambda rows: 3 * rows.T)) and bench.charged() == [1] * 8
    with bench.ledger() as ledger:
        assert ledger.chain.tasks["pieces"].releases == 1 and not ledger.unsettled()
        assert ledger.spent("pieces").epsilon <= 6.0


def test_rows_that_come_later_are_charged_by_themselves(bench: Bench) -> None:
    first = bench.release(5)
    more = bench.release(8)
    assert _same(first, (more[0][:, :5], more[1][:5])) and bench.charged() == [1] * 8
    with bench.ledger() as ledger:
        assert ledger.chain.tasks["pieces"].releases == 2 and ledger.spent("pieces").epsilon <= 6.0


def test_a_crash_before_the_charge_draws_nothing_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[bytes]()

    def power_cut(self: Ledger, task: str, key: str, body: bytes, **more: object) -> bytes:
        seen.append(body)
        raise OSError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "charge", power_cut)
        with pytest.raises(OSError, match="power cut"):
            bench.release()
    assert bench.charged() == []
    columns, labels = bench.release()
    content = columns.T.astype("<f4").tobytes() + labels.astype("<i8").tobytes()
    assert hashlib.sha256(content).digest() == seen[0] and bench.charged() == [1] * 8


def test_a_crash_before_columns_are_kept_charges_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def power_cut(*_: object) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr("crowdml.device.rows.kept_columns.KeptColumns.keep", power_cut)
        with pytest.raises(OSError, match="power cut"):
            bench.release()
    assert bench.charged() == []


def test_lost_columns_are_never_drawn_again(bench: Bench) -> None:
    bench.release()
    with closing(bench.memory()) as memory:
        memory._db.execute("DELETE FROM columns WHERE number = 3")
    with pytest.raises(TermsViolated, match="what was sent of 1 rows is no longer"):
        bench.release()


def test_a_second_release_of_a_sample_is_refused_by_the_ledger(bench: Bench) -> None:
    bench.release()
    with bench.ledger() as ledger, pytest.raises(BudgetExhausted):
        ledger.charge("pieces", "key", b"other", samples=np.array([2]), version=0, numbering=None)


class Uncharged(ReleasedRows):
    """A planted fault: columns are handed out without a charge."""

    def _charge(self, uncharged: object) -> None:
        return None


class Forgetful(ReleasedRows):
    """A planted fault: columns are drawn whenever they are asked for."""

    def __call__(self, sums: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        super().__call__(sums)
        return self._cut.columns(sums(self._rows).T, self._words), np.asarray(self._labels)


def faults(bench: Bench, kind: type[ReleasedRows]) -> set[str]:
    """Look at what a device sends: is all of it charged, and does a sample have one column only?"""
    found, seen = set[str](), dict[int, set[bytes]]()
    for _ in range(3):
        columns, _ = bench.release(kind=kind)
        for number, column in enumerate(columns.T):
            seen.setdefault(number, set()).add(column.tobytes())
        if bench.charged() != [1] * columns.shape[1]:
            found.add("uncharged")
    return found | ({"redrawn"} if any(len(of) > 1 for of in seen.values()) else set())


@pytest.mark.parametrize(
    ("kind", "found"), [(ReleasedRows, set()), (Uncharged, {"uncharged"}), (Forgetful, {"redrawn"})]
)
def test_the_same_look_notices_planted_faults(bench: Bench, kind: type[ReleasedRows], found: set[str]) -> None:
    assert faults(bench, kind) == found
