from collections.abc import Callable
from pathlib import Path

import pytest

from crowdml.task import Task, parse

DIGITS = """
crowdml = 1
name = "digits"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 10
rate = { kind = "inverse-sqrt", c = 30.0 }
[privacy]
mode = "none"
[crowd]
devices = 20
passes = 2
curve = 5
"""


@pytest.fixture
def digits() -> Callable[..., Task]:
    """A small task; changes are given as for --set."""
    return lambda *changes: parse(DIGITS, "digits.toml", changes)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Checkpoints of a test are its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path
