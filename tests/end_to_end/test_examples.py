"""The examples are tasks that can be explained, and that learn something."""

from pathlib import Path

import pytest

from crowdml.data import locate
from crowdml.simulation import simulate
from crowdml.task import Task
from crowdml.task.explanation import explain

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_explained(path: Path) -> None:
    found = explain(Task.load(path))
    assert found.message_parts and found.promise


@pytest.mark.skipif(locate("mnist") is None, reason="MNIST is not on this machine: crowdml data get mnist")
def test_stable_local_steps_learn_under_noise() -> None:
    """A single use of each sample: 0.84 accurate in each of 5 trials; with noise for the whole message at most 0.26."""
    path = next(example for example in EXAMPLES if example.stem == "sound-mnist")
    found = simulate(Task.load(path, ["crowd.passes=1", "privacy.max-uses=1", "crowd.curve=1"]))
    assert found.test_error < 0.25
    assert 7.9 < found.privacy["sample"]["epsilon"] <= 8.0 < found.privacy["device"]["epsilon"]


def test_a_number_is_learnt_under_a_promise() -> None:
    """A relative error of 0.15, where always saying the middle one has 0.22 and no noise at all 0.137."""
    path = next(own for own in EXAMPLES if own.stem == "diabetes")
    found = simulate(Task.load(path), trials=2)
    assert found.test_error < 0.16 and found.measured["r2"][-1].mean() > 0.3 and not found.warnings
    assert found.measured["test_error"][0].mean() > found.test_error + 0.02, "it learns while one looks on"
    assert 7.9 < found.privacy["sample"]["epsilon"] <= 8.0
