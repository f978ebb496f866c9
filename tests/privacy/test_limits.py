"""What a server may refuse: never what an honest device sends, but for one check-in in a thousand million."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Task, parse
from crowdml.core import NUMPY, Batch, trees
from crowdml.device import DeviceCoins
from crowdml.privacy import PrivacySettings, Releases, acceptance, make_plan
from crowdml.privacy.limits import Limit

TASK = """
crowdml = 1
name = "limits"
[data]
features = 6
labels = ["a", "b", "c"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 5
buffer = 9
[privacy]
mechanism = "gaussian"
epsilon = 8.0
delta = 1e-5
clip = 0.5
max-uses = 2
statistics-epsilon = 1.0
owner-range = [0.5, 8.0]
[stop]
max-releases = 4
[crowd]
passes = 1
"""
RATE = "rate = { kind = 'constant', c = 1.0 }"
FORMS = {
    "crowd-sgd": [],
    "no steps": [f"algorithm={{ kind = 'local-sgd', local-steps = 0, {RATE} }}", "privacy.statistics-epsilon=0.0"],
    "steps": [f"algorithm={{ kind = 'local-sgd', local-batch = 3, {RATE} }}", "privacy.statistics-epsilon=0.0"],
    "fedavg": [f"algorithm={{ kind = 'fedavg', local-batch = 3, {RATE} }}", "privacy.statistics-epsilon=0.0"],
    "fedsgd": [f"algorithm={{ kind = 'fedsgd', {RATE} }}", "privacy.statistics-epsilon=0.0"],
}


def task(form: str, *changes: str) -> Task:
    return parse(TASK, changes=[*FORMS[form], *changes])


def check_ins(of: Task, epsilon: float, count: int) -> list[Any]:
    """What a real device sends whose owner has chosen this ε; its nine rows are far longer than any clip."""
    algorithm = of.build(NUMPY, owner_epsilon=epsilon)
    rng = np.random.default_rng(1)
    rows, labels = (50 * rng.standard_normal((9, 6))).astype(np.float32), rng.integers(0, 3, 9).astype(np.int32)
    batch, coins = Batch(rows=rows, labels=labels, mask=np.ones(9, np.float32)), DeviceCoins()
    broadcast = algorithm.check_out(algorithm.init(coins))
    release, _ = algorithm.device_step(broadcast, algorithm.device_init(), batch, coins)
    return [algorithm.sanitise(release, coins) for _ in range(count)]


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_honest_devices_are_accepted_whatever_their_owners_chose(form: str, unit: str, mechanism: str) -> None:
    """False alarm: 60 check-ins at 1e-9 each, here and in all other cases together below 1 in 10⁶."""
    of = task(form, f"privacy.unit={unit}", f"privacy.mechanism={mechanism}")
    limits = acceptance(of.plan(of.model_for(NUMPY)))
    for epsilon in (0.5, 2.0, 8.0):
        assert [limits.problem(sent) for sent in check_ins(of, epsilon, 20)] == [None] * 20


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("part", ["largest", "norm"])
def test_tails_are_no_heavier_than_said_and_not_much_lighter(mechanism: str, part: str) -> None:
    """At p = 2 % for each part: of 2,000 pure noise vectors at most 2 % plus five standard errors exceed.

    False alarm 1 in 3 million if the bound were tight. That a quarter less would be exceeded at least once shows that
    the limits limit something.
    """
    terms = PrivacySettings(mechanism=mechanism, epsilon=8.0, delta=1e-5, clip=1.0, max_uses=10)
    plan = make_plan(terms, lambda order: None, 3, False, releases=Releases(sound=True, size=300))
    assert plan.sound is not None
    limit = acceptance(plan, failure=0.04).update
    coins, scale = DeviceCoins(), plan.sound.update.scale
    draw = coins.discrete_laplace if mechanism == "laplace" else coins.discrete_gaussian
    noise = draw("n", scale, (2000, 300)).astype(np.float64)
    found = np.abs(noise).max(axis=1) if part == "largest" else np.linalg.norm(noise, limit.order, axis=1)
    most = limit.largest if part == "largest" else limit.norm
    assert (found > most).mean() <= 0.02 + 5 * np.sqrt(0.02 * 0.98 / 2000)
    assert (found > 0.75 * most).any()


def changed(sent: Any, **parts: Any) -> Any:
    return sent | parts


def test_what_no_honest_device_sends_is_refused() -> None:
    of = task("crowd-sgd")
    limits = acceptance(of.plan(of.model_for(NUMPY)))
    (sent,) = check_ins(of, 0.5, 1)
    most = limits.update.most(9)
    wild = trees.map(lambda leaf: leaf.copy(), sent["gradient"])
    wild[0]["w"][0, 0] = most + 1
    long = trees.map(lambda leaf: np.full_like(leaf, most), sent["gradient"])
    counts = sent["counts"]
    cases = {
        "gradient: an integer": changed(sent, gradient=wild),
        "gradient: a norm": changed(sent, gradient=long),
        "samples: -1 is negative": changed(sent, samples=np.int32(-1)),
        "samples: 10 rows": changed(sent, samples=np.int32(10)),
        "rows: 10 rows": changed(sent, counts=counts | {"rows": np.int32(10)}),
        "fewer than": changed(sent, counts=counts | {"counted": np.int32(9), "rows": np.int32(3)}),
        "errors: an integer": changed(sent, counts=counts | {"errors": np.int32(2**30)}),
        "labels: an integer": changed(sent, counts=counts | {"labels": np.array([0, -(2**30), 0], np.int32)}),
    }
    assert limits.problem(sent) is None
    for words, bad in cases.items():
        problem = limits.problem(bad)
        assert problem is not None and words in problem, (words, problem)
    # Neither more rows counted than there are, nor more trained on.
    for counted, samples in ((9, 3), (3, 9)):
        bad = changed(sent, samples=np.int32(samples), gradient=trees.map(np.zeros_like, sent["gradient"]))
        bad["counts"] = counts | {"counted": np.int32(counted), "rows": np.int32(3)}
        assert "rows: 3, which are fewer" in (limits.problem(bad) or "")


def test_a_message_bounded_as_a_whole_counts_one_whatever_it_claims() -> None:
    of = task("fedavg")
    limits = acceptance(of.plan(of.model_for(NUMPY)))
    (sent,) = check_ins(of, 8.0, 1)
    assert "samples" not in sent and limits.problem(sent) is None
    assert "weight: 50" in (limits.problem(changed(sent, weight=np.int32(50))) or "")
    # A device cannot make itself heard more than the others by a longer change.
    longer = trees.map(lambda leaf: np.full_like(leaf, limits.update.most() - 1), sent["change"])
    assert "change: a norm" in (limits.problem(changed(sent, change=longer)) or "")


def test_nobody_is_heard_more_by_claiming_rows_beyond_what_a_device_may_bring() -> None:
    of = task("fedsgd", "algorithm.max-rows=100")
    limits = acceptance(of.plan(of.model_for(NUMPY)))
    (sent,) = check_ins(of, 8.0, 1)
    claimed = {"samples": np.int32(101), "weight": sent["weight"]} if "weight" in sent else {"samples": np.int32(101)}
    assert limits.problem(sent) is None
    assert "101 rows, where 100 are the most" in (limits.problem(changed(sent, **claimed)) or "")


def test_limits_follow_the_smallest_choice_and_the_rows() -> None:
    wide, narrow = (
        acceptance(of.plan(of.model_for(NUMPY)))
        for of in (task("fedsgd"), task("fedsgd", "privacy.owner-range=[8.0, 8.0]"))
    )
    assert wide.update.largest > 10 * narrow.update.largest
    assert wide.rows == 10_000 and wide.by_rows
    assert narrow.update.most(100) - narrow.update.most(99) == narrow.update.largest_each
    with pytest.raises(ValueError, match="sound"):
        acceptance(make_plan(PrivacySettings(mode="none"), lambda order: None, 3, False))


def test_extreme_integers_do_not_wrap_around() -> None:
    limit = Limit(largest=10, largest_each=1, order=2, norm=100.0)
    for value in (-(2**31), 2**31 - 1):
        assert limit.problem(np.array([value], np.int32), 1) is not None
    assert limit.problem(np.zeros(0, np.int32), 0) is None
