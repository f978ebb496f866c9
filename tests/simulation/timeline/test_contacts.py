"""Devices that come by themselves: which rows they send when, and what the server makes of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.algorithms.schedule import OnArrival
from crowdml.core import BadInput
from crowdml.simulation.timeline.contacts import (
    Contacts,
    Outages,
    _serve,
    _serve_one_by_one,
    draw_outages,
)
from crowdml.task import Task, parse
from tests.support.simulated import course

Make = Callable[..., Task]
DIGITS = """
crowdml = 1
name = "digits"
[data]
features = 64
labels = ["0", "1"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
"""


def test_without_delays_every_check_in_is_fresh(digits: Make) -> None:
    timeline = course(digits())
    assert (timeline.staleness == 0).all() and timeline.commits.all() and timeline.refused == 0


def test_each_pass_uses_each_row_once(digits: Make) -> None:
    timeline = course(digits())  # 70 rows per device, batches of 10
    assert (np.bincount(timeline.rows.reshape(-1), minlength=1400) == 2).all()
    assert all(len(set(batch)) == len(batch) for batch in timeline.rows.tolist())


def test_rows_left_over_at_the_end_of_a_pass_are_forgotten(digits: Make) -> None:
    timeline = course(digits("algorithm.batch=40"))
    assert len(timeline) == 2 * 20  # one batch of 40 of the 70 rows, per device and pass
    assert timeline.releases == 2


def test_a_fixed_delay_ages_by_the_check_ins_that_arrive_meanwhile(digits: Make) -> None:
    task = digits("crowd.delays={ law = 'fixed', check-in = 100.0 }", "algorithm.batch=1")
    timeline = course(task)
    # One check-in per tick: a check-in read at tick t arrives at t + 100, after those of ticks t-100 … t-1 came in
    # between, except for the first hundred.
    assert (timeline.staleness[200:] == 100).all()
    assert timeline.staleness[0] == 0 and timeline.staleness.max() == 100


def test_dropping_stale_check_ins(digits: Make) -> None:
    timeline = course(digits("algorithm.stale=drop", "crowd.delays={ check-in = 30.0 }"))
    assert timeline.refused > 0 and (timeline.staleness == 0).all()


def test_after_an_outage_a_batch_grows_up_to_the_buffer(digits: Make) -> None:
    outages = "crowd.outages={ every = 300.0, lasting = 600.0 }"
    timeline = course(digits(outages, "algorithm.buffer=25"))
    assert timeline.counts.min() == 10 and timeline.counts.max() == 25
    assert ((timeline.counts > 10) & (timeline.counts < 25)).any()
    uses = np.zeros(1400, int)
    for rows, count in zip(timeline.rows, timeline.counts, strict=True):
        assert len(set(rows[:count].tolist())) == count
        uses[rows[:count]] += 1
    assert uses.max() <= 2, "a row is used at most once per pass"
    assert timeline.samples[-1] == timeline.counts.sum()


def test_outages_that_never_happen_change_nothing(digits: Make) -> None:
    """The general way, through outages that begin after the end, gives the batches of the quick way."""
    plain, general = (course(digits(*changes)) for changes in ([], ["crowd.outages={ every = 1e12, lasting = 1.0 }"]))
    assert len(plain) == len(general) and general.full
    assert sorted(plain.counts) == sorted(general.counts)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_cutting_with_outages_equals_a_plain_loop(seed: int) -> None:
    generator = np.random.default_rng(seed)
    devices, batch, buffer, size = 5, 3, 7, 120
    owner = generator.integers(0, devices, size)
    crowd = parse(DIGITS, changes=["crowd.devices=5", "crowd.outages={ every = 20.0, lasting = 25.0 }"]).crowd
    outages = draw_outages(crowd, size, generator)
    assert outages is not None
    by_device = np.argsort(owner, kind="stable")
    cut = outages.cut(by_device, by_device, np.bincount(owner, minlength=devices), batch, buffer)
    found = sorted((int(d), float(f), rows[:c].tolist()) for d, rows, c, f in zip(*cut, strict=True))
    assert found == sorted(_slowly(owner, devices, batch, buffer, outages))


def _slowly(owner: Any, devices: int, batch: int, buffer: int, outages: Outages) -> list[tuple[int, float, list[int]]]:
    """Tick by tick: gather, and contact as soon as there are enough rows and a network."""
    contacts = []
    for device in range(devices):
        held: list[int] = []
        waiting: float | None = None
        for tick in np.flatnonzero(owner == device).tolist():
            if waiting is not None and tick > waiting:
                contacts.append((device, waiting, held[:buffer]))
                held, waiting = [], None
            held.append(tick)
            if waiting is None and len(held) >= batch:
                out = (outages.begins[device] <= tick) & (tick < outages.ends[device])
                waiting = float(outages.ends[device][out][0]) if out.any() else float(tick)
        if waiting is not None:
            contacts.append((device, waiting, held[:buffer]))
    return contacts


def test_devices_join_and_leave(digits: Make) -> None:
    all_the_time = course(digits("algorithm.batch=1"))
    half = course(digits("algorithm.batch=1", "crowd.joining=1.0"))
    assert 0.3 < len(half) / len(all_the_time) < 0.7  # each device is there for half the time on average
    assert len(course(digits("algorithm.batch=1", "crowd.leaving=0.2"))) < len(all_the_time)


def test_empirical_delays(digits: Make) -> None:
    delays = "crowd.delays={ law = 'empirical', values = [0.0, 1.0], check-in = 50.0 }"
    timeline = course(digits("algorithm.batch=1", delays))
    # Half the check-ins come at once; the others are overtaken by about half of the 50 that follow them, and by others
    # that were late themselves.
    late = timeline.staleness > 1
    assert 0.3 < late.mean() < 0.7 and timeline.staleness[late].min() > 10


def test_a_batch_no_device_can_fill_is_refused(digits: Make) -> None:
    with pytest.raises(BadInput, match="the largest holds 70 rows"):
        course(digits("algorithm.batch=71"))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 50, width=16), st.floats(0.0078125, 40, width=16)), min_size=1, max_size=60, unique=True
    )
)
def test_the_quick_way_equals_one_by_one(legs: list[tuple[float, float]]) -> None:
    read = np.array([leg[0] for leg in legs])
    arrival = read + np.array([leg[1] for leg in legs])
    order = np.argsort(arrival, kind="stable")
    zeros = np.zeros(len(legs), np.int64)
    contacts = Contacts(device=zeros, rows=zeros[:, None], counts=zeros, read=read[order], arrival=arrival[order])
    schedule = OnArrival(batch=1, buffer=1)
    used, *quick = _serve(contacts, schedule, None)
    assert isinstance(used, slice), "the quick way was not taken"
    numbers, *slow = _serve_one_by_one(contacts, schedule, None)
    assert np.arange(len(legs))[used].tolist() == numbers.tolist()
    for one, other in zip(quick, slow, strict=True):
        assert one.tolist() == other.tolist()
