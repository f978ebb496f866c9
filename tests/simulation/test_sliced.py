"""slicenet in simulation: groups learn, slicing changes nothing, drop-outs are survived, noise is accounted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.audit.leak_meter import measure_leaks
from crowdml.core import BadInput
from crowdml.privacy.promise import gaussian_epsilon
from crowdml.simulation import simulate
from crowdml.task import Task, parse

SOURCE = """
crowdml = 1
name = "sliced-digits"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }]
[model]
kind = "mlp"
layers = [24, 16]
[algorithm]
kind = "slicenet"
pieces = 3
batch = 10
rate = 0.3
[privacy]
mode = "none"
[crowd]
devices = 8
passes = 8
curve = 2
"""


def task(*changes: str) -> Task:
    return parse(SOURCE, changes=changes)


def test_groups_learn_and_say_that_nothing_is_promised() -> None:
    result = simulate(task(), trials=2)
    assert result.test_error < 0.2 and result.measured["test_error"].shape == (2, 2)
    assert result.privacy["guarantee"].startswith("no formal guarantee") and result.privacy["sample"] is None
    assert result.samples.tolist() == [4 * 1400, 8 * 1400]


def test_the_cut_changes_nothing_but_the_order_of_additions() -> None:
    """Few steps: rounding grows over many."""
    short = ("crowd.passes=1", "algorithm.theta=0.0", "algorithm.tau=1.0")
    whole: Any = simulate(task(*short, "algorithm.pieces=1", "algorithm.dummies=2")).parameters
    for slicer in ("in-order", "metis"):
        sliced: Any = simulate(task(*short, f"algorithm.slicer={slicer}", "algorithm.balance=2.0")).parameters
        for left, right in zip(sliced, whole, strict=True):
            for name in right:
                np.testing.assert_allclose(left[name], right[name], atol=2e-3)


def test_sharing_helps_groups_that_know_little() -> None:
    changes = ("crowd.devices=16", "crowd.passes=6", "algorithm.pieces=1")
    alone, together = (simulate(task(*changes, f"algorithm.tau={tau}"), trials=2).test_error for tau in (1.0, 0.3))
    assert together < alone


def test_drop_outs_cost_turns_and_dummies_save_them() -> None:
    def lost(*changes: str) -> int:
        notes = simulate(task("crowd.drop-out=0.3", *changes)).notes
        return next(int(note.split()[0]) for note in notes if "turns did not take place" in note)

    assert lost("algorithm.pieces=1", "algorithm.dummies=2") < lost("algorithm.pieces=3")


def test_noise_on_the_first_cut_is_accounted_and_keeps_the_layers_before_it() -> None:
    first: Any = simulate(task("algorithm.cut-noise=0.5", "crowd.passes=1")).parameters
    result = simulate(task("algorithm.cut-noise=0.5", "crowd.passes=2"))
    assert np.array_equal(result.parameters[0]["w"], first[0]["w"])
    assert not np.array_equal(result.parameters[2]["w"], first[2]["w"])
    assert result.privacy["first_cut"]["epsilon"] == pytest.approx(gaussian_epsilon(4.0, 1e-5), rel=1e-5)
    assert "no formal guarantee for labels" in result.privacy["guarantee"]


def test_noise_on_uploads_is_accounted_over_all_passes() -> None:
    result = simulate(task("algorithm.upload-noise=2.0", "crowd.passes=4"))
    assert result.privacy["upload"]["epsilon"] == pytest.approx(gaussian_epsilon(2.0, 1e-5), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("privacy.mode=paper", "no ε can be stated"),
        ("crowd.joining=0.5", "this changes nothing"),
        ("algorithm.tau=1.5", "less than or equal"),
        ("algorithm.slicer=metric", 'did you mean "metis"'),
    ],
)
def test_what_makes_no_sense_is_refused(change: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        task(change)


@pytest.mark.parametrize("change", ["crowd.rows=100", "data.split={ train = 500, test = 100 }"])
def test_rows_that_would_be_chosen_for_every_trial_are_refused(change: str) -> None:
    """Groups train on the rows that the data has: they had taken no notice of either."""
    with pytest.raises(BadInput, match="training rows") as refused:
        simulate(task(change))
    assert refused.value.where == change.partition("=")[0] and "seed = 0" in refused.value.hint


def test_a_split_for_all_trials_is_trained_and_measured_on() -> None:
    result = simulate(task("data.split={ train = 500, test = 100, seed = 0 }", "crowd.passes=2"))
    assert list(result.samples)[-1] == 1000
    assert (100 * result.measured["server_error"]) == pytest.approx(np.round(100 * result.measured["server_error"]))


def test_too_few_devices_and_too_many_pieces_are_refused() -> None:
    with pytest.raises(BadInput, match="needs 4 devices"):
        simulate(task("crowd.devices=3"))
    for change, key in (("pieces=41", "algorithm.pieces"), ("balance=1.001", "algorithm.balance")):
        with pytest.raises(BadInput) as refused:
            simulate(task("crowd.devices=60", f"algorithm.{change}"))
        assert refused.value.where == key


def test_the_audit_reads_sums_and_recovers_rows_and_noise_stops_both() -> None:
    """Chance is 0.1. With sums as they are most labels are read; 120 rows give a standard deviation of 0.045."""
    found = measure_leaks(task("crowd.devices=8"), own_rows=150, victims=120)
    sums = [
        reading.right for reading in found.readings if reading.what.startswith("sums") and reading.right is not None
    ]
    single = next(reading for reading in found.readings if "1 row in" in reading.what)
    assert max(sums) > 0.6 and (single.likeness or 0) > 0.9999
    assert found.guarantee.startswith("no formal guarantee")
    quiet = measure_leaks(task("algorithm.cut-noise=20.0"), own_rows=150, victims=120)
    assert max(reading.right or 0 for reading in quiet.readings if reading.what.startswith("sums")) < 0.4
    assert next(reading for reading in quiet.readings if "1 row in" in reading.what).likeness == 0.0


def test_the_audit_refuses_what_it_cannot_measure() -> None:
    with pytest.raises(BadInput, match="nothing is passed on"):
        measure_leaks(task("algorithm.pieces=0"))
    with pytest.raises(BadInput, match="slicenet tasks, not crowd-sgd"):
        measure_leaks(parse(SOURCE, changes=["algorithm={ kind = 'crowd-sgd' }"]))


SOUND = (
    "privacy={ mode = 'sound', mechanism = 'gaussian', epsilon = 50.0, delta = 1e-6 }",
    "algorithm.label-epsilon=8.0",
)


def test_a_sound_crowd_draws_once_and_says_what_each_sample_is_promised() -> None:
    result = simulate(task(*SOUND, "algorithm.cut-clip=2.0", "crowd.passes=2"))
    first: Any = simulate(task(*SOUND, "algorithm.cut-clip=2.0", "crowd.passes=1")).parameters
    assert np.array_equal(result.parameters[0]["w"], first[0]["w"])
    assert 49.0 < result.privacy["sample"]["epsilon"] <= 50.0 and result.privacy["device"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((*SOUND, "algorithm.cut-noise=0.5"), "works the noise out from epsilon"),
        ((*SOUND, "algorithm.upload-noise=0.5"), "works the noise out from epsilon"),
        (("algorithm.label-epsilon=1.0",), "where samples are promised something"),
        (SOUND[:1], "no ε can be stated"),
    ],
)
def test_noise_that_contradicts_the_terms_is_refused(changes: tuple[str, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        task(*changes)
