"""What a server may refuse: never what an honest device sends, but for one check-in in a thousand million."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, Batch, CheckIn, trees
from crowdml.device import DeviceCoins
from crowdml.privacy import ModelBounds, PrivacySettings, Releases, make_plan
from crowdml.privacy.limits import AT_ONCE, BLOCK, GridLimits, Limit, grid_limits
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.task import Task, parse
from tests.support.phases import stepped
from tests.support.plans import limits_of, problem_with

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


def problem(of: Task, sent: CheckIn) -> str | None:
    return problem_with(sent, of.built, of.calibrated)


def check_ins(of: Task, epsilon: float, count: int) -> list[CheckIn]:
    """What a real device sends whose owner has chosen this ε; its nine rows are far longer than any clip."""
    phase = of.build(NUMPY, owner_epsilon=epsilon).last
    rng = np.random.default_rng(1)
    rows, labels = (50 * rng.standard_normal((9, 6))).astype(np.float32), rng.integers(0, 3, 9).astype(np.int32)
    batch, coins = Batch(rows=rows, targets=labels, mask=np.ones(9, np.float32)), DeviceCoins()
    broadcast = phase.server.check_out(phase.server.init(coins))
    release, _ = stepped(phase, broadcast, batch, coins)
    return [phase.sanitiser.noise(release, (), coins)[0] for _ in range(count)]


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_honest_devices_are_accepted_whatever_their_owners_chose(form: str, unit: str, mechanism: str) -> None:
    """False alarm: 60 check-ins at 1e-9 each, here and in all other cases together below 1 in 10⁶."""
    of = task(form, f"privacy.unit={unit}", f"privacy.mechanism={mechanism}")
    for epsilon in (0.5, 2.0, 8.0):
        assert [problem(of, sent) for sent in check_ins(of, epsilon, 20)] == [None] * 20


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("part", ["largest", "norm"])
def test_tails_are_no_heavier_than_said_and_not_much_lighter(mechanism: str, part: str) -> None:
    """At p = 2 % for each part: of 2,000 pure noise vectors at most 2 % plus five standard errors exceed.

    False alarm 1 in 3 million if the bound were tight. That a quarter less would be exceeded at least once shows that
    the limits limit something.
    """
    terms = PrivacySettings(mechanism=mechanism, epsilon=8.0, delta=1e-5, clip=1.0, max_uses=10)
    last = make_plan(terms, Releases(sends="gradient", rows=1, on_grid=True), ModelBounds(size=300)).last
    assert isinstance(last, OnGrid)
    limit = grid_limits(last.mechanism, None, failure=0.04).update
    coins, scale = DeviceCoins(), last.mechanism.scale
    draw = coins.discrete_laplace if mechanism == "laplace" else coins.rounded_gaussian
    noise = draw("n", scale, (2000, 300)).astype(np.float64)
    found = np.abs(noise).max(axis=1) if part == "largest" else np.linalg.norm(noise, limit.order, axis=1)
    most = limit.largest if part == "largest" else limit.norm
    assert (found > most).mean() <= 0.02 + 5 * np.sqrt(0.02 * 0.98 / 2000)
    assert (found > 0.75 * most).any()


def test_what_no_honest_device_sends_is_refused() -> None:
    of = task("crowd-sgd")
    (sent,) = check_ins(of, 0.5, 1)
    most = limits_of(of.calibrated).update.most(9)
    wild = trees.map(lambda leaf: leaf.copy(), sent.update)
    wild[0]["w"][0, 0] = most + 1
    long = trees.map(lambda leaf: np.full_like(leaf, most), sent.update)
    counts = sent.counts
    cases = {
        "update: an integer": replace(sent, update=wild),
        "update: a norm": replace(sent, update=long),
        "weight: -1 is negative": replace(sent, weight=np.int32(-1)),
        "weight: 10 rows": replace(sent, weight=np.int32(10)),
        "rows: 10 rows": replace(sent, counts=replace(counts, rows=np.int32(10))),
        "fewer than": replace(sent, counts=replace(counts, counted=np.int32(9), rows=np.int32(3))),
        "errors: an integer": replace(sent, counts=replace(counts, errors=np.int32(2**30))),
        "spread: an integer": replace(sent, counts=replace(counts, spread=np.array([0, -(2**30), 0], np.int32))),
    }
    assert problem(of, sent) is None
    for words, bad in cases.items():
        found = problem(of, bad)
        assert found is not None and words in found, (words, found)
    # Neither more rows counted than there are, nor more trained on.
    for counted, samples in ((9, 3), (3, 9)):
        few = replace(counts, counted=np.int32(counted), rows=np.int32(3))
        nothing = trees.map(np.zeros_like, sent.update)
        bad = replace(sent, weight=np.int32(samples), update=nothing, counts=few)
        assert "rows: 3, which are fewer" in (problem(of, bad) or "")


def test_a_message_bounded_as_a_whole_counts_one_whatever_it_claims() -> None:
    of = task("fedavg")
    (sent,) = check_ins(of, 8.0, 1)
    assert sent.weight == 1 and sent.counts == () and problem(of, sent) is None
    assert "weight: 50" in (problem(of, replace(sent, weight=np.int32(50))) or "")
    # A device cannot make itself heard more than the others by a longer change.
    longer = trees.map(lambda leaf: np.full_like(leaf, limits_of(of.calibrated).update.most() - 1), sent.update)
    assert "update: a norm" in (problem(of, replace(sent, update=longer)) or "")


def test_nobody_is_heard_more_by_claiming_rows_beyond_what_a_device_may_bring() -> None:
    of = task("fedsgd", "algorithm.max-rows=100")
    (sent,) = check_ins(of, 8.0, 1)
    assert problem(of, sent) is None
    assert "101 rows, where 100 are the most" in (problem(of, replace(sent, weight=np.int32(101))) or "")


def test_limits_follow_the_smallest_choice_and_the_rows() -> None:
    wide, narrow = (
        limits_of(of.calibrated) for of in (task("fedsgd"), task("fedsgd", "privacy.owner-range=[8.0, 8.0]"))
    )
    assert wide.update.largest > 10 * narrow.update.largest
    assert task("fedsgd").built.schedule.most_rows == 10_000 and wide.by_rows
    assert narrow.update.most(100) - narrow.update.most(99) == narrow.update.largest_each


def test_extreme_integers_do_not_wrap_around() -> None:
    limit = Limit(largest=10, largest_each=1, order=2, norm=100.0)
    for value in (-(2**31), 2**31 - 1):
        assert limit.problem(np.array([value], np.int32), 1) is not None
    assert limit.problem(np.zeros(0, np.int32), 0) is None


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 7, AT_ONCE + BLOCK + 3])
def test_a_norm_is_compared_as_in_double_precision_however_near_the_limit(order: int, dtype: type, size: int) -> None:
    integers: Any = np.random.default_rng(size).integers(-70_000, 70_000, size).astype(dtype)
    values = integers.astype(np.float64)
    norm = float(np.sqrt(np.sum(values**2)) if order == 2 else np.sum(np.abs(values)))
    for share, refused in ((1 - 1e-9, True), (1 + 1e-9, False), (1 - 5e-4, True), (1 + 5e-4, False), (2.0, False)):
        limit = Limit(largest=1 << 20, largest_each=0, order=order, norm=norm * share)
        assert (limit.problem(integers, 1) is not None) == refused, share


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [2, BLOCK, BLOCK + 1, 2 * BLOCK + 3, AT_ONCE + 1])
def test_the_largest_integer_is_found_to_the_last_unit(dtype: type, size: int) -> None:
    for extreme in (np.iinfo(dtype).min, np.iinfo(dtype).max, (1 << 24) + 1, -(1 << 24) - 1):
        for place in (0, size - 1):
            integers: Any = np.zeros(size, dtype)
            integers[place] = extreme
            largest = abs(int(extreme))
            for order in (0, 1, 2):
                assert Limit(largest=largest, largest_each=0, order=order).problem(integers, 1) is None
                found = Limit(largest=largest - 1, largest_each=0, order=order).problem(integers, 1)
                assert found is not None and f"an integer of {largest}" in found


def test_no_integers_have_no_problem() -> None:
    assert Limit(largest=0, largest_each=0, order=2, norm=0.0).problem(np.zeros(0, np.int32), 1) is None


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("most_rows", [20, None])
def test_of_many_check_ins_the_same_is_said_as_of_each(order: int, by_rows: bool, most_rows: int | None) -> None:
    draws = np.random.default_rng(7)
    update = Limit(largest=100, largest_each=3, order=order, norm=900.0 if order == 2 else 15_000.0, norm_each=2.0)
    limits = GridLimits(update=update, errors=None, labels=None, by_rows=by_rows)
    sent = []
    for weight in (1, 1, 1, 0, -1, 20, 21, 1 << 25, -(1 << 31), (1 << 31) - 1):
        for most in (3, 60, 103, 104, 2_000):
            numbers = draws.integers(-most, most + 1, 400).astype(np.int32)
            sent.append(CheckIn(update=numbers, weight=np.int32(weight)))
        for numbers in (np.full(400, -(1 << 31), np.int32), np.full(400, 103, np.int32), np.zeros(400, np.int32)):
            sent.append(CheckIn(update=numbers, weight=np.int32(weight)))
    found = limits.problems(sent, most_rows)
    assert found == [limits.problem(check_in, most_rows) for check_in in sent]
    assert 5 <= sum(problem is None for problem in found) <= len(sent) - 10


def test_of_many_check_ins_one_at_the_very_limit_is_not_refused_and_one_beyond_is() -> None:
    at, beyond = np.zeros(50, np.int32), np.zeros(50, np.int32)
    at[:2], beyond[:2] = (3, 4), (3, -5)
    limits = GridLimits(
        update=Limit(largest=9, largest_each=0, order=2, norm=5.0), errors=None, labels=None, by_rows=True
    )
    sent = [CheckIn(update=numbers, weight=np.int32(1)) for numbers in (at, beyond) * 4]
    assert [problem is None for problem in limits.problems(sent, None)] == [True, False] * 4
