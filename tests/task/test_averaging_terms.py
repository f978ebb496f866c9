"""What a task file may ask of averaging: refusals, warnings, and which messages a device sends."""

import numpy as np
import pytest

from crowdml.algorithms.aggregation.public_rows import require_targets
from crowdml.core import NUMPY, BadInput, CheckIn, Labels
from crowdml.task import Task, parse
from crowdml.task.averaging_terms import warnings
from tests.support.plans import problem_with

BASE = """
crowdml = 1
name = "terms"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
public = 300
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
[privacy]
mode = "none"
"""
MEDIAN = "robust.rule={ kind = 'median' }"


def task(*changes: str) -> Task:
    return parse(BASE, changes=changes)


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        (["algorithm.averaging=learned", "data.public=199"], "data.public", "at least 200"),
        (["algorithm.finetune.steps=5", "data.public=0"], "data.public", "at least 10"),
        (["robust.rule={ kind = 'root-cosine' }", "data.public=0"], "data.public", "public rows"),
        (["algorithm.averaging=learned", MEDIAN], "robust", "nothing left to weigh"),
        (["algorithm.per-round=1", MEDIAN], "robust", "nothing to compare"),
        (["algorithm.per-round=1", "algorithm.averaging=learned"], "averaging", "nothing to compare"),
        (["algorithm={ kind = 'crowd-sgd' }", MEDIAN], "robust", "never has several check-ins"),
        (["algorithm={ kind = 'crowd-sgd' }", "crowd.attack={ kind = 'sign' }"], "attack", "never has several"),
        ([MEDIAN, "secure-aggregation.enabled=true"], "secure-aggregation.enabled", "sum alone"),
        (["algorithm.averaging=learned", "secure-aggregation.enabled=true"], "secure-aggregation.enabled", "sum alone"),
        (["crowd.personal.steps=5"], "personal", "held-out"),
    ],
)
def test_what_cannot_be_done_is_refused(changes: list[str], where: str, what: str) -> None:
    with pytest.raises(BadInput) as error:
        task(*changes)
    assert what in error.value.what and where in error.value.where


ABC = Labels(names=("a", "b", "c"))


def test_public_rows_must_have_every_label() -> None:
    with pytest.raises(BadInput, match="label b"):
        require_targets(np.array([0, 0, 2]), ABC, 1)
    with pytest.raises(BadInput, match="too few"):
        require_targets(np.array([0, 1, 2]), ABC, 4)
    require_targets(np.array([0, 1, 2]), ABC, 3)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (["crowd.partition={ kind = 'shards' }"], "other classes"),
        (["privacy={ mechanism = 'gaussian', clip = 1.0, epsilon = 1.0, delta = 1e-5, max-uses = 10 }"], "noise"),
        (["robust.rule={ kind = 'trimmed-mean', share = 0.1 }", "crowd.attack={ kind = 'sign' }"], "leaves out"),
    ],
)
def test_readers_are_warned_where_a_rule_is_known_to_fail(changes: list[str], what: str) -> None:
    assert any(what in warning for warning in warnings(task(MEDIAN, *changes)))
    assert not warnings(task(MEDIAN))
    assert not warnings(task("robust.rule={ kind = 'root-cosine' }", "crowd.partition={ kind = 'shards' }"))


def test_only_sums_may_be_masked() -> None:
    assert task().build(NUMPY).last.server.takes == "sums"
    for change in (MEDIAN, "algorithm.averaging=learned", "algorithm.averaging=inverse-variance"):
        assert task(change).build(NUMPY).last.server.takes == "individuals"


@pytest.mark.parametrize("change", ["algorithm.averaging=equal", MEDIAN])
def test_nobody_counts_for_the_rows_it_claims_where_all_count_alike(change: str) -> None:
    of = task(change)
    update = {"w": np.zeros((10, 64), np.float32)}
    assert problem_with(CheckIn(update=(update,), weight=np.int32(1)), of.built, of.calibrated) is None
    claimed = problem_with(CheckIn(update=(update,), weight=np.int32(1000)), of.built, of.calibrated)
    assert claimed is not None and "counts 1" in claimed
