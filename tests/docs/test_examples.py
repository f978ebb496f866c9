"""Every example does what it is an example of: task files learn, and everything else is run by a test that names it."""

from pathlib import Path

import numpy as np
import pytest

import crowdml

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TASKS = sorted(EXAMPLES.glob("*.toml"))
BETTER_THAN_GUESSING = 0.9
"""An example must do better than this share of the error of one who always says the commonest label."""


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The small digits of scikit-learn, which stand in for larger data sets that a machine may not have."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return rows.astype(np.float32), labels.astype(np.int64)


def enlarged(rows: np.ndarray) -> np.ndarray:
    """Pictures of 28 by 28 with values to 255, as MNIST has them."""
    pictures = np.kron(rows.reshape(-1, 8, 8), np.ones((1, 3, 3), np.float32))
    return np.pad(pictures, ((0, 0), (2, 2), (2, 2))).reshape(len(rows), 784) * np.float32(255 / 16)


def stand_in(task: crowdml.Task) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows for a task whose data set is not part of the installation."""
    rows, labels = digits()
    if task.data.dataset == "mnist":
        return enlarged(rows), labels
    if task.data.dataset == "activity":
        few = labels < 3
        return rows[few] * 4, labels[few]
    return None


SMALLER = {
    "private-steps": ["crowd.devices=1", "algorithm.per-round=1"],
    "sound-mnist": ["crowd.devices=2", "algorithm.server-batch=2"],
}
"""Fewer devices where fewer rows stand in for MNIST, so that a device has as many as in the example."""


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_a_task_file_learns(path: Path) -> None:
    task = crowdml.Task.load(path, SMALLER.get(path.stem, []))
    result = crowdml.simulate(task, data=stand_in(task))
    if task.data.labels:
        assert result.test_error < BETTER_THAN_GUESSING * (1 - 1 / len(task.data.labels))
    else:
        assert result.to_json()["final"]["r2"]["mean"] > 1 - BETTER_THAN_GUESSING


def test_everything_else_is_run_by_some_test() -> None:
    tests = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)
    )
    others = [path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix not in (".toml", ".pyc")]
    assert len(others) > 5
    assert [path.name for path in others if path.name not in tests] == []
