"""Fixtures for the data tests: full datasets where they are present, an isolated cache everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crowdml.data import Dataset, load, locate


@pytest.fixture
def full() -> Callable[[str], Dataset]:
    """Load a full dataset, or skip the test where it is absent."""

    def get(name: str) -> Dataset:
        if locate(name) is None:
            pytest.skip(f"the dataset {name} is not on this machine; set CROWDML_DATA to a folder that has it")
        return load(name)

    return get


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pretend that no dataset is here; return the folder that stands for the user's cache."""
    monkeypatch.delenv("CROWDML_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "crowdml" / "data"
