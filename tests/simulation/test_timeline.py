from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.algorithms import Algorithm, Task, parse
from crowdml.core import NUMPY, BadInput
from crowdml.simulation.contacts import Contacts
from crowdml.simulation.outages import Outages, draw_outages
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import Timeline, _serve, _serve_one_by_one, make_timeline

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


def timeline_of(task: Task, seed: int = 0) -> Timeline:
    _, dataset = prepare(task)
    return make_timeline(task, dataset, task.build(NUMPY), np.random.default_rng(seed))


def test_without_delays_every_check_in_is_fresh(digits: Make) -> None:
    timeline = timeline_of(digits())
    assert (timeline.staleness == 0).all() and timeline.commits.all() and timeline.refused == 0


def test_each_pass_uses_each_row_once(digits: Make) -> None:
    timeline = timeline_of(digits())  # 70 rows per device, batches of 10
    assert (np.bincount(timeline.rows.reshape(-1), minlength=1400) == 2).all()
    assert all(len(set(batch)) == len(batch) for batch in timeline.rows.tolist())


def test_rows_left_over_at_the_end_of_a_pass_are_forgotten(digits: Make) -> None:
    timeline = timeline_of(digits("algorithm.batch=40"))
    assert len(timeline) == 2 * 20  # one batch of 40 of the 70 rows, per device and pass
    assert timeline.releases == 2


def test_a_batch_belongs_to_one_device(digits: Make) -> None:
    task = digits("crowd.partition={ kind = 'shards' }")
    _, dataset = prepare(task)
    generator = np.random.default_rng(7)
    timeline = make_timeline(task, dataset, task.build(NUMPY), generator)
    owner = task.crowd.partition.assign(dataset.train_labels, None, 20, np.random.default_rng(7))
    assert (owner[timeline.rows] == timeline.device[:, None]).all()


def test_a_fixed_delay_ages_by_the_check_ins_that_arrive_meanwhile(digits: Make) -> None:
    task = digits("crowd.delays={ law = 'fixed', check-in = 100.0 }", "algorithm.batch=1")
    timeline = timeline_of(task)
    # One check-in per tick: a check-in read at tick t arrives at t + 100, after those of ticks t-100 … t-1 came in
    # between, except for the first hundred.
    assert (timeline.staleness[200:] == 100).all()
    assert timeline.staleness[0] == 0 and timeline.staleness.max() == 100


def test_limits(digits: Make) -> None:
    timeline = timeline_of(digits("stop.max-releases=3", "stop.max-versions=50"))
    assert timeline.releases == 3 and len(timeline) == 50
    assert np.bincount(timeline.device).max() <= 3


def test_drop_outs_are_lost_but_spent(digits: Make) -> None:
    timeline = timeline_of(digits("crowd.drop-out=0.5"))
    assert timeline.releases == 14
    # 280 contacts, half kept: outside 80…200 has probability below 1e-12.
    assert 80 < len(timeline) < 200


def test_dropping_stale_check_ins(digits: Make) -> None:
    timeline = timeline_of(digits("algorithm.stale=drop", "crowd.delays={ check-in = 30.0 }"))
    assert timeline.refused > 0 and (timeline.staleness == 0).all()


def test_after_an_outage_a_batch_grows_up_to_the_buffer(digits: Make) -> None:
    outages = "crowd.outages={ every = 300.0, lasting = 600.0 }"
    timeline = timeline_of(digits(outages, "algorithm.buffer=25"))
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
    plain, general = (
        timeline_of(digits(*changes)) for changes in ([], ["crowd.outages={ every = 1e12, lasting = 1.0 }"])
    )
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
    all_the_time = timeline_of(digits("algorithm.batch=1"))
    half = timeline_of(digits("algorithm.batch=1", "crowd.joining=1.0"))
    assert 0.3 < len(half) / len(all_the_time) < 0.7  # each device is there for half the time on average
    assert len(timeline_of(digits("algorithm.batch=1", "crowd.leaving=0.2"))) < len(all_the_time)


def test_empirical_delays(digits: Make) -> None:
    delays = "crowd.delays={ law = 'empirical', values = [0.0, 1.0], check-in = 50.0 }"
    timeline = timeline_of(digits("algorithm.batch=1", delays))
    # Half the check-ins come at once; the others are overtaken by about half of the 50 that follow them, and by others
    # that were late themselves.
    late = timeline.staleness > 1
    assert 0.3 < late.mean() < 0.7 and timeline.staleness[late].min() > 10


def test_a_batch_no_device_can_fill_is_refused(digits: Make) -> None:
    with pytest.raises(BadInput, match="the largest holds 70 rows"):
        timeline_of(digits("algorithm.batch=71"))


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
    contacts = Contacts(
        device=zeros, rows=zeros[:, None], counts=zeros, filled=read, read=read[order], arrival=arrival[order]
    )
    algorithm = _always_ready()
    for quick, slow in zip(
        _serve(contacts, algorithm, None), _serve_one_by_one(contacts, algorithm, None), strict=True
    ):
        assert quick.tolist() == slow.tolist()


def _always_ready() -> Any:
    class Stub:
        always_ready = True

        @staticmethod
        def accepts(staleness: int) -> bool:
            return True

        @staticmethod
        def ready(counts: Any) -> bool:
            return True

    stub: Algorithm = Stub()  # type: ignore[assignment]
    return stub
