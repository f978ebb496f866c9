"""A model of the owner's own, from an exported one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from crowdml.algorithms.solitary import PersonalSettings
from crowdml.core import BadInput, trees
from crowdml.device import Device
from crowdml.device.device_home import Home
from crowdml.device.personal_model import HeldOut, keeps_model, personal, personal_of
from crowdml.task import parse
from crowdml.task.live_task import assemble

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
    model = personal(live, tmp_path / "model.safetensors", rows, PersonalSettings(steps=30, batch=4, rate=1.0))
    assert common.predictions(ROWS) == ["down", "up", "down", "up"]
    assert model.predictions(ROWS) == LABELS


def test_rows_kept_back_compare_both_models_and_the_file_is_the_owners(tmp_path: Path) -> None:
    live = assemble(parse(TASK), [])
    save_file({"0/w": np.array([[3.0, 0.0], [0.0, 3.0]], np.float32)}, tmp_path / "model.safetensors", {"version": "7"})
    rows = (np.tile(ROWS, (5, 1)), np.tile(np.array([1, 0, 1, 0]), 5))
    steps = PersonalSettings(steps=30, batch=4, rate=1.0)
    model = personal(live, (tmp_path / "model.safetensors").read_bytes(), rows, steps, held_out=0.25)
    assert model.version == 7 and model.held_out == HeldOut(rows=5, common=5, personal=0)
    model.save(tmp_path / "own.safetensors")
    assert (tmp_path / "own.safetensors").stat().st_mode & 0o777 == 0o600
    again = personal(live, tmp_path / "own.safetensors", rows, PersonalSettings(steps=0))
    assert again.predictions(ROWS) == LABELS and again.held_out is None
    with pytest.raises(BadInput, match="ending"):
        model.save(tmp_path / "own.pickle")


def test_a_device_asks_for_the_model_also_after_the_end(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    home = Home(join(server))
    server.state = "stopped"
    model = personal_of(home, rows, PersonalSettings(steps=50, rate=3.0), held_out=0.25, connect=server.connect)
    assert model.version == 0 and model.held_out is not None and model.held_out.rows == 2
    with home.ledger() as ledger:
        assert ledger.chain.tasks["walk"].releases == 0
    assert server.sent == []


def test_a_model_of_another_task_is_refused(tmp_path: Path) -> None:
    live = assemble(parse(TASK), [])
    save_file({"0/w": np.zeros((3, 2), np.float32)}, tmp_path / "model.safetensors")
    for name, what in (("model.safetensors", "another task"), ("missing.safetensors", "not a model")):
        with pytest.raises(BadInput, match=what):
            personal(live, tmp_path / name, (ROWS, np.array([1, 0, 1, 0])), PersonalSettings(steps=1))
    save_file({"0/w": np.full((2, 2), np.nan, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="not finite"):
        personal(live, tmp_path / "model.safetensors", (ROWS, np.array([1, 0, 1, 0])), PersonalSettings(steps=1))


def test_the_model_that_ditto_keeps_on_a_device_is_its_owners(make_server: Any, join: Any, rows: Any) -> None:
    algorithm = "algorithm={ kind = 'ditto', per-round = 1, personal-rate = 2.0, pull = 0.0 }"
    server = make_server(algorithm, "privacy={ mode = 'none' }", "crowd={ devices = 1 }")
    home = Home(join(server))
    assert keeps_model(home)
    with pytest.raises(BadInput, match="has not contributed yet"):
        personal_of(home, rows, connect=server.connect)
    with Device(home.path, connect=server.connect) as device:
        assert device.run(rows, releases=3).releases == 3
        state = device.sender.state()
    model = personal_of(home, rows, connect=server.connect)
    assert model.steps is None and model.held_out is not None and model.held_out.rows == 8
    for found, kept in zip(trees.leaves(model.parameters), trees.leaves(state.work.parameters), strict=True):
        np.testing.assert_array_equal(found, kept)
    assert max(np.abs(leaf).max() for leaf in trees.leaves(model.parameters)) > 0.1
    said = model.predictions(np.array([row for row, _ in rows], np.float32))
    assert model.held_out.personal == sum(found != label for found, (_, label) in zip(said, rows, strict=True))


def test_where_nothing_is_kept_steps_must_be_given(make_server: Any, join: Any, rows: Any) -> None:
    server = make_server()
    home = Home(join(server))
    assert not keeps_model(home)
    with pytest.raises(BadInput, match="crowd-sgd keeps no model on a device"):
        personal_of(home, rows, connect=server.connect)
