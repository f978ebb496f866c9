"""The promise in words: on masked tasks never that of a task whose devices add all their noise themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crowdml.task import parse
from crowdml.task.explanation import explain
from crowdml.task.owners import OwnerPromise, owner_promise
from crowdml.task.owners.promise_words import alone
from crowdml.task.task import Task

MASKED = (Path(__file__).parents[2] / "examples" / "secagg-digits.toml").read_text()
ALONE = "Nobody but the device itself has to be trusted"


def words(task: Task) -> OwnerPromise:
    return owner_promise(task)


def test_a_masked_promise_names_honest_share_drop_outs_and_cryptography() -> None:
    task = parse(MASKED)
    found = words(task)
    assert found.in_epsilon.startswith("Each sample is promised ε = 2, δ = 1e-05 over the 20 releases")
    assert "sums over many devices" in found.in_epsilon
    for part in ("γ = 0.9", "30%", "28 of the 40", "at least 24 honest", "at most 4", "computational", "share"):
        assert part in found.rests_on, part
    assert ALONE not in found.rests_on and "secure aggregation" in found.short
    assert explain(task).promise.endswith(found.rests_on)
    assert "anything the server might see" not in explain(task).promise


def test_what_one_share_alone_would_leave_is_said_and_worse() -> None:
    task = parse(MASKED)
    left = alone(task.calibrated)
    # With 24 shares ε = 2; one share has a 24th of the variance, so ρ is 24 times as large.
    assert left.epsilon > 3 * 2.0
    told = re.search(r"would leave ε = ([0-9.]+)", words(task).rests_on)
    assert told and float(told[1]) == pytest.approx(left.epsilon, rel=0.01)


def test_the_promise_is_per_unit() -> None:
    changes = ['privacy.unit="device"', "stop.max-releases=20", "privacy.epsilon=50.0", "privacy.max-uses=20"]
    task = parse(MASKED, changes=[*changes[:3]])
    assert words(task).in_epsilon.startswith("Each device, with all its samples, is promised ε = 50,")


def test_without_masks_a_promise_rests_on_the_device_alone() -> None:
    found = words(parse(MASKED, changes=["secure-aggregation.enabled=false"]))
    assert ALONE in found.rests_on and "secure aggregation" not in found.rests_on
    with pytest.raises(ValueError, match="alone anyway"):
        task = parse(MASKED, changes=["secure-aggregation.enabled=false"])
        alone(task.calibrated)


def test_masks_without_noise_are_not_said_to_show_the_server_everything() -> None:
    text = re.sub(
        r"\[privacy\].*?\[secure-aggregation\]", '[privacy]\nmode = "none"\n[secure-aggregation]', MASKED, flags=re.S
    )
    masked, plain = words(parse(text)), words(parse(text, changes=["secure-aggregation.enabled=false"]))
    assert masked.in_epsilon.startswith("No formal guarantee") and "as it is" not in masked.in_epsilon
    assert "at least 28 devices" in masked.rests_on and "not bounded" in masked.rests_on
    assert "as it is" in plain.in_epsilon
    assert "sums" in explain(parse(text)).promise
