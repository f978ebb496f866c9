from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdml.algorithms import Algorithm, Task
from crowdml.core import NUMPY, BadInput
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import Contacts, Timeline, _serve, _serve_one_by_one, make_timeline

Make = Callable[..., Task]


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
    contacts = Contacts(device=zeros, rows=zeros[:, None], read=read[order], arrival=arrival[order])
    algorithm = _always_ready()
    for quick, slow in zip(_serve(contacts, algorithm, None), _serve_one_by_one(contacts, algorithm, None), strict=True):
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
