"""The analysis of Crowd-ML 2015 as a tool: its figures are those of what is really drawn, sent and missed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdml.cli.app import app
from crowdml.core import NUMPY, Release, trees
from crowdml.simulation.engine.hash_coins import HashCoins
from crowdml.task.explanation import analyse_updates
from crowdml.task.task_file import parse

TASK = """
crowdml = 1
name = "analysed"

[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "norm", order = 1, at-most = 1.0 }]

[model]
kind = "softmax"

[algorithm]
kind = "crowd-sgd"
batch = 20

[privacy]
mode = "paper"
epsilon = 10.0

[crowd]
devices = 10
delays = { request = 5.0, check-out = 100.0, check-in = 60.0 }
"""


def test_equation_13_lacks_the_number_of_labels_and_the_noise_has_it() -> None:
    found = analyse_updates(parse(TASK))
    assert found is not None and found.equation_13 is not None
    assert found.equation_13 == pytest.approx(32 * 64 / 200**2)
    assert found.noise == pytest.approx(10 * found.equation_13), "ten labels of 64 numbers each"
    assert found.gradient == pytest.approx(2 / 20), "softmax: √2 in L2 for rows of length 1"


GAUSSIAN = ("privacy.mechanism=gaussian", "privacy.delta=1e-5", "privacy.clip=1.0")
SOUND = ("privacy.mode=sound", "privacy.max-uses=2")


@pytest.mark.parametrize("changes", [(), GAUSSIAN, SOUND, (*SOUND, *GAUSSIAN)])
def test_the_noise_is_that_of_drawn_check_ins(changes: tuple[str, ...]) -> None:
    task = parse(TASK, changes=changes)
    found, sanitiser = analyse_updates(task), task.build(NUMPY).last.sanitiser
    zero = sanitiser.use.like()
    lengths = []
    for seed in range(100):
        release, coins = Release(update=zero, rows=np.int32(20)), HashCoins(np.array([1, 2], np.uint32), seed, NUMPY)
        check_in, _ = sanitiser.noise(release, sanitiser.memory(), coins)
        update, _ = sanitiser.read(check_in, lambda: zero)
        lengths.append(sum(float(np.square(leaf).sum()) for leaf in trees.leaves(update)))
    assert found is not None and found.noise == pytest.approx(np.mean(lengths), rel=0.05)


def test_delays_are_counted_in_updates_of_others() -> None:
    found = analyse_updates(parse(TASK))
    assert found is not None and (found.missed, found.missed_at_most) == (4.0, 8.0)
    slow = analyse_updates(parse(TASK, changes=["crowd.delays.law=exponential"]))
    assert slow is not None and (slow.missed, slow.missed_at_most) == (8.0, None)


def test_traffic_is_b_over_2_where_a_model_is_as_long_as_a_row() -> None:
    many = analyse_updates(parse(TASK))
    two = analyse_updates(parse(TASK, changes=['data.labels=["0", "1"]', "model.kind=logistic", "privacy.clip=1.0"]))
    assert many is not None and many.traffic == pytest.approx(1.0), "ten labels make a model ten rows long"
    assert two is not None and two.traffic == 10.0 == two.to_json()["paper_traffic"]
    assert "10 times less" in two.lines()[-1] and "b/2 = 10" in two.lines()[-1]


def test_rounds_have_no_batches_on_arrival_to_analyse() -> None:
    changes = ["algorithm={ kind = 'fedavg' }", "privacy={ mode = 'none' }", "crowd.delays={}"]
    assert analyse_updates(parse(TASK, changes=changes)) is None


def test_explain_and_simulate_print_it(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_text(TASK)
    runner = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"})
    explained = runner.invoke(app, ["privacy", "explain", str(path), "--json", str(path.with_suffix(".json"))])
    assert "updates missed between check-out and check-in: 4 on average, 8 at most" in explained.output
    assert json.loads(path.with_suffix(".json").read_text())["analysis"]["missed"] == 4.0
    simulated = runner.invoke(app, ["simulate", str(path), "--trials", "1", "--set", "crowd.passes=1"])
    assert "traffic: as much as sending rows" in simulated.output, simulated.output
