from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crowdml.core import NUMPY, Array, BadInput, Batch, CheckIn, Release, Tally
from crowdml.core.errors import MalformedMessage
from crowdml.device.entropy_coins import DeviceCoins
from crowdml.privacy.gaussian import gaussian_budget
from crowdml.privacy.renyi import rho_budget
from crowdml.privacy.sanitisers.grid import OnGrid
from crowdml.task import Task, parse
from crowdml.task.explanation import explain
from crowdml.task.live_task import masked_forms
from crowdml.task.masking import MaskedForm
from tests.support.phases import stepped

TASK = """
crowdml = 1
name = "masked"
[data]
features = 4
labels = ["a", "b", "c"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "fedsgd"
per-round = 20
max-rows = 30
[privacy]
mechanism = "gaussian"
epsilon = 4.0
delta = 1e-5
max-uses = 5
clip = 1.0
[secure-aggregation]
enabled = true
"""


def forms_of(task: Task) -> tuple[MaskedForm, ...]:
    return masked_forms(task, task.build(NUMPY))


def form_of(*changes: str) -> MaskedForm:
    (found,) = forms_of(parse(TASK, changes=changes))
    return found


def promising_nothing() -> MaskedForm:
    head, rest = TASK.split("[privacy]")
    (found,) = forms_of(
        parse(head + '[privacy]\nmode = "none"\n[secure-aggregation]' + rest.split("[secure-aggregation]")[1])
    )
    return found


def test_members_and_survivors_follow_from_the_section() -> None:
    masking = parse(TASK).masking()
    assert masking is not None
    assert (masking.invited, masking.least, masking.corrupt, masking.shared.survivors) == (20, 14, 2, 12)


def test_without_the_section_nothing_is_masked() -> None:
    plain = parse(TASK, changes=["secure-aggregation.enabled=false"])
    assert plain.masking() is None
    assert forms_of(plain) == ()


def test_less_noise_is_needed_together_than_alone() -> None:
    """A twelfth of the variance, but that exact sums save some of it where every release stands alone."""
    together, alone = (
        parse(TASK, changes=changes).calibrated for changes in ((), ("secure-aggregation.enabled=false",))
    )
    assert alone.noise < together.noise * np.sqrt(12)
    limit = alone.terms.limit
    saved = rho_budget(limit.epsilon, limit.delta) / gaussian_budget(limit.epsilon, limit.delta)
    assert alone.noise == pytest.approx(together.noise * np.sqrt(12 * saved), rel=0.02)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (["algorithm.per-round=2"], "secure-aggregation.enabled"),
        (["secure-aggregation.honest=0.3"], "secure-aggregation.honest"),
        (["privacy.mechanism=laplace"], "privacy.mechanism"),
        (["privacy.owner-range=[1.0, 4.0]"], "privacy.owner-range"),
        (["privacy.mode=paper"], "secure-aggregation.enabled"),
        (["algorithm.kind=crowd-sgd"], "secure-aggregation.enabled"),
        (["secure-aggregation.drop-out=0.6", "secure-aggregation.honest=0.6"], "secure-aggregation.honest"),
    ],
)
def test_what_would_hide_nobody_is_refused(changes: list[str], where: str) -> None:
    lines = TASK
    if changes == ["algorithm.kind=crowd-sgd"]:
        lines = TASK.replace('kind = "fedsgd"', 'kind = "crowd-sgd"').replace("per-round = 20\nmax-rows = 30", "")
        changes = []
    if changes == ["privacy.mode=paper"]:
        lines = TASK.replace("max-uses = 5\n", "")
    with pytest.raises(BadInput) as caught:
        parse(lines, changes=changes)
    assert where in caught.value.where


def test_agreement_is_no_choice_any_more() -> None:
    with pytest.raises(BadInput, match="always agree") as caught:
        parse(TASK, changes=["secure-aggregation.agreement=true"])
    assert "secure-aggregation.agreement" in caught.value.where


def test_a_drop_out_that_leaves_no_majority_is_refused_with_what_would_do() -> None:
    with pytest.raises(BadInput, match="cheating server") as caught:
        parse(TASK, changes=["secure-aggregation.drop-out=0.5"])
    assert "secure-aggregation.drop-out" in caught.value.where
    assert "at most 0.4," in caught.value.hint
    assert parse(TASK, changes=["secure-aggregation.drop-out=0.4"]).masking() is not None


def test_local_steps_must_start_from_the_present_version() -> None:
    lines = TASK.replace('kind = "fedsgd"', 'kind = "local-sgd"').replace(
        "per-round = 20\nmax-rows = 30", 'server-batch = 20\nstale = "accept"'
    )
    with pytest.raises(BadInput, match="present version"):
        parse(lines)
    assert parse(lines.replace("accept", "drop")).masking() is not None


def test_integers_and_noise_are_told_apart() -> None:
    form = form_of()
    release = Release(update=np.full(12, 7, np.int32), rows=np.int32(30))
    check_in = CheckIn(update=np.arange(12, dtype=np.int32), weight=np.int32(30))
    vector, noise = form.vector(release, check_in)
    assert vector.tolist() == [7] * 12 + [30]
    assert noise is not None
    assert noise.tolist() == [at - 7 for at in range(12)] + [0]
    back = form.check_in(3 * (vector + noise), 3)
    assert back.update.tolist() == [3 * at for at in range(12)]
    assert int(back.weight) == 90


class Seven(DeviceCoins):
    """Coins of a device, but for noise: that is always 7."""

    def discrete_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        return np.full(shape, 7, np.int32)


@pytest.mark.parametrize("rows", [65_535, 65_536, 140_000])
def test_no_number_of_rows_wraps_a_vector_around(rows: int) -> None:
    """At 32 bits 65,536 such rows, and all but one of them, would be 2³² apart, where noise hides 1.5 · 2¹⁵."""
    head, tail = TASK.replace("features = 4", "features = 1").split("[model]")
    task = parse(
        head.replace('["a", "b", "c"]', '["a", "b"]') + "[model]" + tail.replace("clip = 1.0\n", ""),
        changes=["model.kind=logistic", "algorithm={ kind = 'ridge', per-round = 20 }", "privacy.max-uses=1"],
    )
    (form,) = forms_of(task)
    phase, coins = task.build(NUMPY).last, Seven()
    broadcast = phase.server.check_out(phase.server.init(coins))
    ones = np.ones(rows, np.float32)
    release, state = stepped(
        phase, broadcast, Batch(rows=ones[:, None], targets=ones.astype(np.int32), mask=ones), coins
    )
    check_in, _ = phase.finish(broadcast, release, state, coins)
    vector, noise = form.vector(release, check_in)
    assert noise is not None
    assert vector.tolist() == [rows << 15, rows << 15, rows]
    assert noise.tolist() == [7, 7, 0]


def test_numbers_without_a_promise_are_summed_in_fixed_point() -> None:
    form = promising_nothing()
    check_in = CheckIn(update=np.linspace(-900, 900, 12).astype(np.float32), weight=np.int32(30))
    vector, noise = form.vector(Release(update=check_in.update, rows=np.int32(30)), check_in)
    assert noise is None
    back = form.check_in(2 * vector, 2)
    assert np.allclose(back.update, 2 * check_in.update, atol=2.0**-15)
    assert back.update.dtype == np.float32
    assert int(back.weight) == 60


@pytest.mark.parametrize("value", [1001.0, -1001.0, np.inf, np.nan])
def test_a_number_out_of_range_is_an_error(value: float) -> None:
    form = promising_nothing()
    check_in = CheckIn(update=np.full(12, value, np.float32), weight=np.int32(1))
    with pytest.raises(BadInput, match="beyond 1000"):
        form.vector(Release(update=check_in.update, rows=np.int32(1)), check_in)


def test_a_sum_that_has_wrapped_is_noticed() -> None:
    form = form_of()
    with pytest.raises(MalformedMessage, match="wrapped"):
        form.check_in(np.full(13, 1 << (form.terms.bits - 1)), 14)


COUNTS = ("algorithm.statistics=true", "privacy.statistics-epsilon=0.4")


def test_counts_go_with_the_same_sum_and_are_part_of_epsilon() -> None:
    task = parse(TASK, changes=COUNTS)
    plan = task.calibrated
    assert isinstance(plan.last, OnGrid) and plan.last.counts is not None and plan.last.counts.shared is not None
    counts, rows = plan.last.counts, plan.terms.changing or 1
    assert plan.terms.limit.covers(plan.event.times(5))
    assert not plan.terms.limit.covers(plan.event.times(6))
    # A tenth of ε is a tenth of what divergences may add up to, for a change of √3 among 12 shares.
    assert 0.095 < counts.event(rows).rho / plan.event.rho <= 0.1
    assert counts.event(1).rho == pytest.approx(3 / (2 * 12 * counts.errors**2))
    form = form_of(*COUNTS)
    assert form.terms.size == 12 + 1 + 3 + 3
    assert form.deviation == plan.last.mechanism.scale


def test_counts_are_summed_and_estimated_from() -> None:
    form = form_of(*COUNTS)
    rows, nothing = np.int32(30), np.zeros(12, np.int32)
    counts = Tally(rows=rows, counted=rows, errors=np.int32(12), spread=np.array([10, 10, 10], np.int32))
    release = Release(update=nothing, rows=rows, counts=counts)
    noisy = CheckIn(update=nothing, weight=rows, counts=replace(counts, errors=np.int32(15)))
    vector, noise = form.vector(release, noisy)
    assert noise is not None
    assert int(noise.sum()) == 3
    back = form.check_in(2 * (vector + noise), 2)
    assert int(back.counts.errors) == 30
    assert back.counts.spread.tolist() == [20, 20, 20]


def test_counts_of_a_round_are_never_sent_alone() -> None:
    with pytest.raises(BadInput, match="under secure aggregation only"):
        parse(TASK, changes=[*COUNTS, "secure-aggregation.enabled=false"])


def test_a_rate_cannot_count_check_ins_that_nobody_sees() -> None:
    with pytest.raises(BadInput, match="one by one"):
        parse(TASK, changes=['algorithm.rate={ kind = "constant", c = 1.0, counter = "check-ins" }'])


def test_owners_are_told_on_whom_the_promise_rests() -> None:
    told = explain(parse(TASK))
    assert "at least 12 honest devices" in told.promise
    assert "Nobody but the device" not in told.promise
    protection = {part.name: part.protection for part in told.message_parts}
    assert protection["weight"] == "masked"
    assert protection["version"] == "in clear"
    assert "then masked" in next(words for name, words in protection.items() if name.startswith("update"))
