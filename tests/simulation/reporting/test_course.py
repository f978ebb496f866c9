"""The course of a run: versions, bytes and ε so far, against a count by hand; what is lost is spent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crowdml.core import BadInput
from crowdml.data.transforms import fit_rows
from crowdml.simulation import simulate
from crowdml.simulation.prepare import prepare
from crowdml.simulation.reporting.course import message_bytes
from crowdml.simulation.run import make_timelines
from crowdml.task import Task
from crowdml.task.live_task import assemble

Make = Callable[..., Task]
NOISE = "privacy={ mode = 'paper', mechanism = 'gaussian', clip = 0.5, epsilon = 2.0, delta = 1e-6 }"
LOSSY = ("crowd.drop-out=0.3", "crowd.delays={ request = 100, check-in = 200 }")


def test_a_frame_says_what_was_used_up(digits: Make) -> None:
    task = digits(NOISE, "crowd.passes=3", "algorithm.batch=35", *LOSSY)
    result = simulate(task, trials=2, engine="numpy")
    frame = result.to_pandas()
    assert list(frame)[:3] == ["samples", "trial", "test_error"] and len(frame) == 10
    timelines = make_timelines(task, prepare(task)[1], 2, 0)
    for trial, timeline in enumerate(timelines):
        rows = frame[frame["trial"] == trial]
        assert rows["versions"].iloc[-1] == timeline.commits.sum()
        sent = len(timeline.sent.device)
        assert sent > len(timeline)  # some are lost, and were sent
        assert rows["bytes_up"].iloc[-1] == sent * (message_bytes(task)[0] or 0)
        for name in ("versions", "time", "bytes_up", "bytes_down", "epsilon", "seconds"):
            assert (np.diff(rows[name]) >= 0).all(), name
    # In the end it is what the result says of the whole task, and never more before.
    assert frame["epsilon"].iloc[-1] == pytest.approx(result.privacy["sample"]["epsilon"], abs=1e-6)
    assert frame["epsilon"].iloc[0] >= 2.0 - 1e-9


def test_bytes_are_those_of_a_live_task(digits: Make) -> None:
    task = digits()
    fitted = fit_rows(task.data.transform, np.zeros((2, 64), np.float32))
    live = assemble(task, fitted)
    assert message_bytes(task) == (live.messages.check_in.size_bytes, live.messages.check_out.size_bytes)
    knorm = digits("privacy={ mode = 'paper', mechanism = 'k-norm', epsilon = 2.0 }")
    assert message_bytes(knorm) == message_bytes(digits("privacy={ mode = 'paper', epsilon = 2.0 }"))
    assert message_bytes(digits("algorithm={ kind = 'decentral' }")) == (0, 0)
    assert message_bytes(digits("algorithm={ kind = 'central-sgd' }")) == (None, None)


def test_epsilon_so_far_is_never_less_than_what_was_spent(digits: Make) -> None:
    """Counted by hand: every contact that had read its parameters before a point has been released."""
    task = digits(NOISE, "algorithm={ kind = 'fedsgd', per-round = 5 }", "crowd.rounds=12", "crowd.drop-out=0.2")
    result = simulate(task, trials=2, engine="numpy")
    assert result.course is not None and result.times is not None
    timelines = make_timelines(task, prepare(task)[1], 2, 0)
    for at in range(len(result.samples)):
        spent = 0
        for trial, timeline in enumerate(timelines):
            sent = timeline.sent.read < result.times[at, trial] * (1 - 1e-6)
            spent = max(spent, int(np.bincount(timeline.sent.device[sent]).max()))
        assert result.course.releases[at] >= spent
        assert at == len(result.samples) - 1 or result.course.releases[at] == spent
    assert result.course.releases[-1] == max(timeline.releases for timeline in timelines)
    assert result.along("epsilon")[-1] == pytest.approx(result.privacy["sample"]["epsilon"], abs=1e-6)


def test_the_unit_of_the_terms_is_the_unit_of_the_column(digits: Make) -> None:
    terms = "mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-5"
    sample = digits(f"privacy={{ {terms}, max-uses = 2 }}")
    device = digits(f"privacy={{ {terms}, unit = 'device' }}", "stop.max-releases=14")
    for task, unit in ((sample, "sample"), (device, "device")):
        result = simulate(task, engine="numpy")
        assert result.along("epsilon")[-1] == pytest.approx(result.privacy[unit]["epsilon"], abs=1e-6)
        assert result.along("epsilon")[0] < result.along("epsilon")[-1] <= 8.0


def test_without_noise_there_is_no_epsilon(digits: Make) -> None:
    frame = simulate(digits(), engine="numpy").to_pandas()
    assert frame["epsilon"].isna().all() and frame["bytes_up"].notna().all()


def test_what_is_not_used_up_is_answered_with_what_is(digits: Make) -> None:
    with pytest.raises(BadInput, match='name: "byte_up" is nothing that is used up\n  did you mean "bytes_up"'):
        simulate(digits("crowd.passes=1"), engine="numpy").along("byte_up")
