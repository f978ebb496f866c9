"""Programs that are kept: found again, whole or not at all, and never too many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crowdml.simulation.engine import program_cache
from crowdml.simulation.engine.program_cache import ProgramCache, open_cache


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    cache = ProgramCache(folder=tmp_path)
    assert cache.get("a program") is None
    cache.put("a program", b"made by XLA")
    assert cache.get("a program") == b"made by XLA"


@pytest.mark.parametrize("damage", [lambda old: old[:-1], lambda old: b"", lambda old: old[:40] + b"\0" + old[41:]])
def test_a_damaged_entry_is_taken_away(tmp_path: Path, damage: object) -> None:
    cache = ProgramCache(folder=tmp_path)
    cache.put("a program", b"made by XLA")
    [path] = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert cache.get("a program") is None
    assert not path.exists()


def test_the_longest_unused_makes_room(tmp_path: Path) -> None:
    cache = ProgramCache(folder=tmp_path, most_bytes=1000)
    for number, name in enumerate("abc"):
        cache.put(name, bytes(300))
        [path] = {path for path, _, _ in cache.entries()} - {path for path, _, used in cache.entries() if used < 1000}
        os.utime(path, (number, number))
    assert cache.get("a") is not None, "used now"
    cache.put("d", bytes(300))
    assert [cache.get(name) is not None for name in "abcd"] == [True, False, True, True]
    cache.put("e", bytes(2000))
    assert cache.get("e") is None
    assert cache.clear()[0] == 3
    assert cache.entries() == []


def test_the_folder_is_looked_at_now_and_then_and_never_passes_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, looks = ProgramCache(folder=tmp_path, most_bytes=64_000), []
    entries = ProgramCache.entries

    def counted(self: ProgramCache) -> list[tuple[Path, int, float]]:
        looks.append(self)
        return entries(self)

    monkeypatch.setattr(ProgramCache, "entries", counted)
    for number in range(200):
        cache.put(f"program {number}", bytes(68))
    assert len(looks) == 20, "a look for each 64th"
    for number in range(100):
        cache.put(f"larger program {number}", bytes(1500))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 64_000


def test_another_processor_has_programs_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ProgramCache(folder=tmp_path)
    cache.put("a program", b"made by XLA")
    monkeypatch.setattr(program_cache, "processor", lambda: "another")
    assert cache.get("a program") is None


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "programs"
    monkeypatch.setenv(program_cache.FOLDER, str(folder))
    made = open_cache()
    assert made is not None and folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert open_cache() is None
    monkeypatch.setenv(program_cache.FOLDER, "off")
    assert open_cache() is None
