"""Two groups of real devices learn MNIST and share weights: their models have the error that one process finds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from crowdml.core import trees
from crowdml.data import load as load_dataset
from crowdml.models import flatten
from crowdml.slicing import batch_gradients
from crowdml.slicing.sharing import UploadWindow, owners_of_parameters
from crowdml.slicing.training import Group, Rules, share, train_turn
from crowdml.task.live_task import sliced_net_of
from tests.support.live_slices import SlicedCrowd

pytestmark = pytest.mark.live
DEVICES, ROWS = 12, 100
TASK = """
crowdml = 1
name = "pieces"
objective = "Recognise handwritten digits"
[data]
features = 784
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.00392156862745098 }]
[model]
kind = "mlp"
layers = [64, 32]
[algorithm]
kind = "slicenet"
pieces = 4
dummies = 1
batch = 10
rate = 0.1
theta = 0.5
tau = 0.5
omega = 2
[privacy]
mode = "none"
[stop]
max-releases = 1
"""


@pytest.mark.skipif("CROWDML_DATA" not in os.environ, reason="CROWDML_DATA names no folder with MNIST")
def test_mnist_in_two_groups_has_the_error_of_one_process(tmp_path: Path) -> None:
    dataset = load_dataset("mnist")
    chosen = np.random.default_rng(5).permutation(len(dataset.train_targets))[: DEVICES * ROWS]
    shares = np.split(chosen, DEVICES)

    def rows(device: int) -> tuple[np.ndarray, np.ndarray]:
        return dataset.train_rows[shares[device]], dataset.train_targets[shares[device]].astype(np.int64)

    with SlicedCrowd(tmp_path, DEVICES, TASK, rows) as crowd:
        first = crowd.first()
        crowd.join()
        crowd.wait_for_end(patience_s=200)
        shown = crowd.groups()
        seats, settings = crowd.seats(), crowd.task.algorithm
        net = sliced_net_of(crowd.task)
        window = UploadWindow(2, size=trees.size(first))
        owners = owners_of_parameters(net, first)
        rules = Rules(pieces=4, batch=10, rate=0.1, decay=1.0, theta=0.5, tau=0.5, drop_out=0.0)
        uploaded = {
            group["group"]: next(event["time"] for event in group["events"] if event["what"] == "shared")
            for group in shown
        }
        scale = np.float32(1 / 255)
        models, errors = {}, {}
        tests, labels = dataset.test_rows * scale, dataset.test_targets
        for group in sorted(shown, key=lambda each: uploaded[each["group"]]):
            names = [member["member"] for member in group["members"]]
            whole, matters = Group(np.arange(6), first), trees.map(np.zeros_like, first)
            for event in group["events"]:
                if event["what"] != "turn":
                    continue
                device = seats[group["group"], names.index(event["members"][0]) + 1]
                order = crowd.order(device, event["turn"])
                inputs, targets = crowd.rows[device]
                train_turn(
                    whole,
                    (inputs * scale, targets),
                    device,
                    order,
                    settings.batch,
                    settings.rate,
                    lambda parameters, batch, _, __: batch_gradients(net, parameters, batch).gradient,
                    matters,
                )
            share(
                whole,
                window,
                flatten(matters).astype(np.float32),
                owners,
                rules,
                first,
                None,
                np.random.default_rng(0),
            )
            models[group["group"]] = whole.parameters
            wrong = net.model.predict(whole.parameters, tests) != labels
            errors[group["group"]] = float(np.mean(wrong))
        for (group_number, _), device in seats.items():
            live = crowd.model(device)
            found = float(np.mean(net.model.predict(live, tests) != labels))
            assert found == errors[group_number], (found, errors, group_number)
            for ours, theirs in zip(trees.leaves(live), trees.leaves(models[group_number]), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
        print(f"test errors of the two groups, live and in one process: {errors}")
        assert max(errors.values()) < 0.7
