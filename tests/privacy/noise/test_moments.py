"""Squares of rows: two rows are never farther apart than what the noise is made for, and budgets are kept."""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdml.algorithms.device_parts.moments import Moments, Squares
from crowdml.core import NUMPY, BadInput, Batch, Number
from crowdml.privacy import ModelBounds, Plan, PrivacySettings, Releases, make_plan
from crowdml.privacy.noise.grid import GridMechanism, moments_grid
from crowdml.privacy.noise.laws import SUM_LAWS
from crowdml.privacy.noise.shares import Shared
from crowdml.privacy.releases import Sends
from crowdml.simulation.engine.jax_ops import JAX
from crowdml.task import parse
from crowdml.task.live_task import definition_of, open_task
from crowdml.wire.signed_task import TaskDocument
from tests.support.plans import on_grid
from tests.support.targets import some_labels

FEATURES = 5
NUMBERS = st.floats(-1, 1, width=32)
ROW = st.lists(NUMBERS, min_size=FEATURES, max_size=FEATURES)


def integers(row: list[float], label: int, labels: bool) -> np.ndarray:
    moments = Moments(features=FEATURES, target=some_labels(2) if labels else None, ops=NUMPY)
    batch = Batch(rows=np.array([row], np.float32), targets=np.array([label], np.int32), mask=np.ones(1, np.float32))
    found = Squares(moments=moments, rows=batch.rows, batch=batch).on_grid(moments_grid(FEATURES, labels))
    return np.asarray(found, np.int64)


@given(ROW, ROW, NUMBERS, NUMBERS, st.floats(0.5, 100.0, width=32))
def test_no_two_rows_with_numbers_are_farther_apart_either(
    one: list[float], other: list[float], first: float, second: float, longer: float
) -> None:
    heat = Moments(features=FEATURES, target=Number(low=0.0, high=1.0), ops=NUMPY)
    rows, grid = longer * np.array([one, other], np.float32), moments_grid(FEATURES, True)
    pair = [
        np.asarray(Squares(moments=heat, rows=batch.rows, batch=batch).on_grid(grid), np.int64)
        for row, value in zip(rows, (first, second), strict=True)
        for batch in [Batch(rows=row[None], targets=np.array([value], np.float32), mask=np.ones(1, np.float32))]
    ]
    assert int((pair[0] - pair[1]) @ (pair[0] - pair[1])) <= grid.sensitivity_power


@given(ROW, ROW, st.integers(0, 1), st.integers(0, 1), st.booleans())
def test_no_two_rows_are_farther_apart_than_the_sensitivity(
    one: list[float], other: list[float], first: int, second: int, labels: bool
) -> None:
    apart = integers(one, first, labels) - integers(other, second, labels)
    assert int(apart @ apart) <= moments_grid(FEATURES, labels).sensitivity_power


@pytest.mark.parametrize(("labels", "cosine", "second"), [(False, 0.0, 1), (True, 0.5, 0)])
def test_the_bound_is_nearly_met(labels: bool, cosine: float, second: int) -> None:
    other = [cosine, math.sqrt(1 - cosine**2), 0.0, 0.0, 0.0]
    apart = integers([1.0, 0.0, 0.0, 0.0, 0.0], 1, labels) - integers(other, second, labels)
    if labels:  # y·x and u·z point apart where the labels differ, so the worst pair has x·z = +½
        assert second == 0
    grid = moments_grid(FEATURES, labels)
    assert math.sqrt(int(apart @ apart)) > 0.999 * grid.sensitivity


def test_rows_that_are_too_long_or_no_numbers_say_no_more() -> None:
    grid = moments_grid(FEATURES, True)
    for row in ([100.0, 3.0, 0.0, 0.0, 0.0], [math.nan, 1.0, 0.0, 0.0, 0.0], [math.inf] * 5):
        with np.errstate(invalid="ignore"):
            found = integers(row, 1, True)
        assert int(found @ found) <= grid.limit


@pytest.mark.parametrize("label", [-1, 2, 7, 2**31 - 1])
def test_a_strange_label_makes_no_row_longer(label: int) -> None:
    """Devices refuse such labels; the bound does not rely on it, not even for rows so short that they would pass."""
    nearest = min(max(label, 0), 1)
    for row in ([0.6, 0.0, -0.8, 0.0, 0.0], [0.0014, 0.0, 0.0, 0.0, 0.0]):
        assert (integers(row, label, True) == integers(row, nearest, True)).all()


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("longer", [1.0001, 3.0, 1e10])
def test_rows_longer_than_one_are_shortened_and_not_dropped(labels: bool, longer: float) -> None:
    row = np.array([0.6, 0.0, -0.8, 0.0, 0.0])
    found, expected = integers(list(longer * row), 1, labels), integers(list(row), 1, labels)
    assert np.abs(found - expected).max() <= 1 and np.abs(expected).max() > 10_000


@pytest.mark.parametrize("labels", [False, True])
def test_rows_a_little_longer_than_one_are_no_farther_apart_than_the_sensitivity(labels: bool) -> None:
    """The check on the integers' length alone would let them pass: it leaves room for rounding."""
    grid = moments_grid(FEATURES, labels)
    cosine, nearest = (0.5 if labels else 0.0), 0.0
    for longer in 1 + np.linspace(0, 2 * math.sqrt(grid.size) / grid.levels, 60):
        other = longer * np.array([cosine, math.sqrt(1 - cosine**2), 0.0, 0.0, 0.0])
        apart = integers([longer, 0.0, 0.0, 0.0, 0.0], 1, labels) - integers(list(other), 0, labels)
        nearest = max(nearest, int(apart @ apart) / grid.sensitivity_power)
    assert 0.999 < nearest <= 1


@pytest.mark.parametrize(("labels", "apart"), [(False, math.sqrt(2)), (True, math.sqrt(4.5))])
@pytest.mark.parametrize("features", [1, 5, 105])
def test_rounding_is_part_of_the_sensitivity(features: int, labels: bool, apart: float) -> None:
    """Half a level for each number of either row; few rows are rounded so unluckily, so it is worked out here."""
    grid = moments_grid(features, labels)
    assert apart * grid.levels / grid.radius + math.sqrt(grid.size) < grid.sensitivity
    assert grid.sensitivity < apart * grid.levels / grid.radius + 1.05 * math.sqrt(grid.size) + 1


@pytest.mark.parametrize("labels", [False, True])
def test_rows_that_are_padding_are_not_counted(labels: bool) -> None:
    moments = Moments(features=FEATURES, target=some_labels(2) if labels else None, ops=NUMPY)
    rows = np.full((3, FEATURES), 0.4, np.float32)
    batch = Batch(rows=rows, targets=np.ones(3, np.int32), mask=np.array([1, 0, 0], np.float32))
    found = Squares(moments=moments, rows=rows, batch=batch).on_grid(moments_grid(FEATURES, labels))
    np.testing.assert_array_equal(found, integers([0.4] * FEATURES, 1, labels))


def test_rows_whose_sum_would_wrap_around_in_a_simulation_are_refused() -> None:
    """Compiled sums have 32 bits; those of a device have more (`tests/task/test_masking.py`)."""
    ones = jnp.ones(65_536)
    for count in (65_535, 65_536):
        batch = Batch(rows=ones[:count, None], targets=ones[:count], mask=ones[:count])
        squares = Squares(moments=Moments(features=1, target=None, ops=JAX), rows=batch.rows, batch=batch)
        if count == 65_535:
            assert squares.on_grid(moments_grid(1, False)).tolist() == [65_535 << 15]
            continue
        with pytest.raises(BadInput, match="65536 rows") as caught:
            squares.on_grid(moments_grid(1, False))
        assert caught.value.where == "algorithm.max-rows" and "max-rows = 65535" in str(caught.value.hint)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 50.0])
@pytest.mark.parametrize("law", sorted(SUM_LAWS))
@pytest.mark.parametrize("first_uses", [0, 2])
def test_every_law_of_shares_keeps_its_budget_and_uses_nearly_all_of_it(
    first_uses: int, law: str, epsilon: float
) -> None:
    """Of Skellam noise divergences are known at whole orders alone, which prove a little less."""
    terms = PrivacySettings(
        mechanism="gaussian",
        epsilon=epsilon,
        delta=1e-5,
        max_uses=12 if first_uses else 1,
        clip=1.0 if first_uses else None,
    )
    sends: Sends = "gradient" if first_uses else "moments"
    releases = Releases(
        sends=sends, first_uses=first_uses, phases=2 if first_uses else 1, on_grid=True, published=False
    )
    shared = Shared(law=SUM_LAWS[law], survivors=70)
    plan = make_plan(terms, releases, ModelBounds(size=20, features=20, shared=shared))
    spent = plan.event.times(plan.terms.uses).epsilon(plan.terms.limit.kind, 1e-5)
    assert 0.99 * epsilon < spent <= epsilon


def test_a_share_that_no_device_could_draw_is_refused_before_anybody_signs_it() -> None:
    terms = PrivacySettings(mechanism="gaussian", epsilon=0.1, delta=1e-5, max_uses=1)
    releases = Releases(sends="moments", phases=1, on_grid=True, published=False)
    plans = {}
    for law in sorted(SUM_LAWS):
        model = ModelBounds(size=20, features=20, shared=Shared(law=SUM_LAWS[law], survivors=70))
        if law != "skellam":
            plans[law] = make_plan(terms, releases, model)
            continue
        with pytest.raises(BadInput, match=r"skellam noise of scale 2.82e\+05 is beyond the 1.31e\+05") as caught:
            make_plan(terms, releases, model)
        assert caught.value.where == "secure-aggregation.law"
    assert plans["discrete-gaussian"].noise > 1.31e5


NEWTON = """
crowdml = 1
name = "income"
[data]
features = 4
labels = ["low", "high"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "logistic"
[algorithm]
kind = "consensus-newton"
per-round = 100
[privacy]
mechanism = "gaussian"
epsilon = 1.0
delta = 1e-5
clip = 0.5
max-uses = 20
[secure-aggregation]
enabled = true
"""


@pytest.mark.parametrize("uses", [1, 2, 5])
def test_a_first_message_of_squares_is_charged_as_many_uses_as_it_costs(uses: int) -> None:
    task = parse(NEWTON, changes=(f"algorithm.first-uses={uses}",))
    live = open_task(TaskDocument(task=task.name, incarnation=1, definition=definition_of(task), arrays=({},)))
    plan = live.plan
    first, _ = noise_of(plan)
    assert [live.algorithm.at(version).uses for version in range(3)] == [uses, 1, 1]
    assert first.event.rho <= plan.event.times(live.algorithm.at(0).uses).rho
    if uses > 1:
        assert first.event.rho > plan.event.times(uses - 1).rho
    # All that a sample may enter, charged as it is charged, keeps the promise; one release more does not.
    assert plan.terms.releases == 20 - uses + 1 and plan.after(0).rho == 0
    assert plan.after(1).rho == plan.event.times(uses).rho
    assert plan.terms.limit.covers(plan.after(plan.terms.releases))
    assert plan.after(plan.terms.releases).promise(1e-5).epsilon > 0.99


def terms(**changes: object) -> PrivacySettings:
    given = {"mechanism": "gaussian", "clip": 0.5, "epsilon": 1.0, "delta": 1e-5, "max_uses": 12}
    return PrivacySettings(**(given | changes))  # type: ignore[arg-type]


def planned(
    settings: PrivacySettings, first_uses: int = 2, shared: Shared | None = None, limit: int | None = None
) -> Plan:
    phases = 2 if first_uses else 1
    sends: Sends = "gradient" if first_uses else "moments"
    sent = Releases(sends=sends, first_uses=first_uses, phases=phases, on_grid=True)
    return make_plan(settings, sent, ModelBounds(size=105, features=105, shared=shared, limit=limit))


def noise_of(plan: Plan) -> tuple[GridMechanism, GridMechanism]:
    """Bound and noise of the first release, and of all others."""
    first, last = plan.sanitisers
    return on_grid(first), on_grid(last)


def epsilon_of(plan: Plan, releases: int) -> float:
    found = plan.figure(releases)
    assert found is not None
    return found.epsilon


def test_squares_and_gradients_together_keep_the_total() -> None:
    plan = planned(terms())
    first, rest = noise_of(plan)
    assert first.event.rho / rest.event.rho == pytest.approx(2, abs=1e-2)
    assert first.event.rho <= 2 * rest.event.rho
    assert 0.99 < epsilon_of(plan, 11) <= 1.0
    assert epsilon_of(plan, 12) > 1.0


@pytest.mark.parametrize("uses", [1, 3])
def test_rounds_of_squares_alone_keep_the_total(uses: int) -> None:
    plan = planned(terms(max_uses=uses), first_uses=0)
    assert len(plan.sanitisers) == 1 and 0.99 < epsilon_of(plan, uses) <= 1.0


@pytest.mark.parametrize("law", SUM_LAWS)
def test_shares_are_never_too_small_for_the_law_of_their_sum(law: str) -> None:
    """However many there are: nothing is proven of sums of smaller ones."""
    shared = Shared(law=SUM_LAWS[law], survivors=10**6)
    for made in noise_of(planned(terms(), shared=shared)):
        assert made.scale**2 >= shared.law.least


def test_squares_that_cost_more_than_their_uses_are_refused() -> None:
    plan = planned(terms())
    with pytest.raises(ValueError, match="than the 1 uses"):
        replace(plan, terms=replace(plan.terms, first_uses=1))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"unit": "device"}, "privacy.unit"),
        ({"mechanism": "laplace"}, "privacy.mechanism"),
        ({"owner_range": [0.5, 2.0]}, "privacy.owner-range"),
        ({"max_uses": 2}, "privacy.max-uses"),
    ],
)
def test_what_cannot_be_kept_is_refused(changes: dict[str, object], where: str) -> None:
    with pytest.raises(BadInput) as caught:
        planned(terms(**changes), limit=11)
    assert caught.value.where == where
