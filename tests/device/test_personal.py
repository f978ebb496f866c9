"""A model of the owner's own, from an exported one."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from crowdml.algorithms import parse
from crowdml.algorithms.live import assemble
from crowdml.algorithms.personal import PersonalSettings
from crowdml.core import BadInput
from crowdml.device.personal import personal

TASK = """
crowdml = 1
name = "signs"
[data]
features = 2
labels = ["down", "up"]
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
[privacy]
mode = "none"
"""
ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 3.0]], np.float32)
LABELS = ["up", "down", "up", "down"]


def test_some_steps_teach_what_the_common_model_does_not_know(tmp_path: Path) -> None:
    live = assemble(parse(TASK), [])
    save_file({"0/w": np.array([[3.0, 0.0], [0.0, 3.0]], np.float32)}, tmp_path / "model.safetensors")
    rows = (ROWS, np.array([1, 0, 1, 0]))
    common = personal(live, tmp_path / "model.safetensors", rows, PersonalSettings(steps=0))
    own = personal(live, tmp_path / "model.safetensors", rows, PersonalSettings(steps=30, batch=4, rate=1.0))
    assert common.labels(ROWS) == ["down", "up", "down", "up"]
    assert own.labels(ROWS) == LABELS


def test_a_model_of_another_task_is_refused(tmp_path: Path) -> None:
    live = assemble(parse(TASK), [])
    save_file({"0/w": np.zeros((3, 2), np.float32)}, tmp_path / "model.safetensors")
    for name, what in (("model.safetensors", "another task"), ("missing.safetensors", "not a model")):
        with pytest.raises(BadInput, match=what):
            personal(live, tmp_path / name, (ROWS, np.array([1, 0, 1, 0])), PersonalSettings(steps=1))
