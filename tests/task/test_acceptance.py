"""Acceptance: whatever an honest device sends passes, for every recipe whose check-ins are seen one by one; what is far
beyond does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import RECIPES
from crowdml.core import Array, Batch, CheckIn, Tally, trees
from crowdml.device import DeviceCoins
from crowdml.privacy.limits import LARGEST_FLOAT, LARGEST_ROWS
from crowdml.task import parse
from crowdml.task.live_task import LiveTask, assemble
from crowdml.wire import message
from tests.support.phases import model_of, stepped
from tests.support.plans import limits_of, problem_with

TASK = """
crowdml = 1
name = "walk"
[data]
features = 3
labels = ["standing", "walking"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
"""
RATE = "rate = { kind = 'constant', c = 1.0 }"
FORMS = {
    "crowd-sgd": "kind = 'crowd-sgd', batch = 4, buffer = 6",
    "local-sgd": f"kind = 'local-sgd', local-steps = 2, local-batch = 2, {RATE}",
    "local-sgd, averaged": f"kind = 'local-sgd', local-steps = 2, local-batch = 2, server-batch = 3, {RATE}",
    "local-sgd, gradients": f"kind = 'local-sgd', local-steps = 0, local-batch = 4, {RATE}",
    "fedavg": f"kind = 'fedavg', per-round = 2, local-batch = 2, {RATE}",
    "fedsgd": f"kind = 'fedsgd', per-round = 2, {RATE}",
    "scaffold": f"kind = 'scaffold', per-round = 2, local-batch = 2, devices = 4, {RATE}",
    "dp-fedavg": f"kind = 'dp-fedavg', per-round = 2, local-batch = 2, {RATE}",
}
ALIKE = {"fedprox", "fedavgm", "fedadam", "fedyogi", "ditto", "fedbuff"}
"""Recipes that send what fedavg or local-sgd send, bounded and perturbed in the same way."""
SOUND = "privacy={ mode = 'sound', epsilon = 4.0, delta = 1e-5, max-uses = 3, clip = 0.5, owner-range = [1.0, 4.0] }"
MODES = {"none": [], "gaussian": [SOUND, "privacy.mechanism=gaussian"], "laplace": [SOUND, "privacy.mechanism=laplace"]}
SENT = 10_000


class Pool(DeviceCoins):
    """A device's coins that are tossed many at a time, which is faster and the same law."""

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[Any, list[Array]] = defaultdict(list)

    def _take(self, law: Any, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        left = self._left[law.__name__, stage, scale, shape]
        if not left:
            left.extend(law(stage, scale, (SENT, *shape)))
        return np.asarray(left.pop())

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        return self._take(super().discrete_laplace, stage, scale, shape)

    def rounded_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        return self._take(super().rounded_gaussian, stage, scale, shape)


def make(form: str, mode: str) -> LiveTask:
    changes = [f"algorithm={{ {FORMS[form]} }}", *MODES[mode]]
    if form == "dp-fedavg":
        if mode == "laplace":
            pytest.skip("it bounds its messages by itself, in L2")
        changes = [change.replace("clip = 0.5, ", "") for change in changes]
    if mode != "none":
        changes += ["stop.max-releases=3", "crowd.passes=3"]
        changes += ["privacy.statistics-epsilon=0.4"] if form == "crowd-sgd" else []
    return assemble(parse(TASK, changes=changes), [])


def honest(live: LiveTask, count: int) -> Iterator[CheckIn]:
    """Yield what a device sends, from rows far longer than any clip."""
    phase, draws = live.algorithm.last, np.random.default_rng(1)
    size = max(live.algorithm.schedule.batch, 4)
    broadcast, coins = live.messages.check_out.example["content"], Pool()
    for number in range(count):
        if number % 1000 == 0:
            rows = (50 * draws.standard_normal((size, 3))).astype(np.float32)
            labels = draws.integers(0, 2, size).astype(np.int32)
            batch = Batch(rows=rows, targets=labels, mask=np.ones(size, np.float32))
            release, _ = stepped(phase, broadcast, batch, coins)
        yield phase.sanitiser.noise(release, (), coins)[0]


def test_every_recipe_whose_check_ins_are_seen_is_tried() -> None:
    seen = {name for name, recipe in RECIPES.items() if recipe.live and not recipe.sums_only}
    assert seen == {form.split(",")[0] for form in FORMS} | ALIKE


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("form", list(FORMS))
def test_ten_thousand_honest_check_ins_pass(form: str, mode: str) -> None:
    """False alarm: 12 × 10⁴ check-ins at 1e-9 each, so about one run in 8,000."""
    live = make(form, mode)
    for number, content in enumerate(honest(live, 100 if mode == "none" else SENT)):
        if number < 20:  # the server reads it from the wire, with parameters as one vector
            body = live.messages.check_in.encode(message(0, content))
            assert not refused(live, live.server_messages.check_in.decode(body)["content"])
        assert not refused(live, content)


def refused(live: LiveTask, content: Any) -> bool:
    return problem_with(content, live.server, live.plan) is not None


@pytest.mark.parametrize("mode", ["gaussian", "laplace"])
@pytest.mark.parametrize("form", list(FORMS))
def test_integers_and_norms_five_times_beyond_the_limit_are_refused(form: str, mode: str) -> None:
    live = make(form, mode)
    (content,), limits = honest(live, 1), limits_of(live.plan)
    number = int(content.weight)
    assert (number > 1) == limits.by_rows
    most = limits.update.most(number)
    longest = limits.update.norm + limits.update.norm_each * number
    flat = trees.size(content.update)

    def with_update(values: Any) -> Any:
        spread = iter(np.asarray(values, np.int32))
        update = trees.map(
            lambda leaf: np.array([next(spread) for _ in range(leaf.size)], np.int32).reshape(leaf.shape),
            content.update,
        )
        return replace(content, update=update)

    one = np.zeros(flat)
    one[0] = 5 * most
    assert refused(live, with_update(one)) and refused(live, with_update(-one))
    even = 5 * longest / (flat if limits.update.order == 1 else np.sqrt(flat))
    assert refused(live, with_update(np.full(flat, min(even, 2**31 - 1))))
    assert not refused(live, with_update(np.zeros(flat)))


@pytest.mark.parametrize("mode", list(MODES))
def test_counts_five_times_beyond_the_limit_are_refused(mode: str) -> None:
    live = make("crowd-sgd", mode)
    (content,) = honest(live, 1)
    counts = content.counts

    def with_count(name: str, value: Any) -> CheckIn:
        return replace(content, counts=replace(counts, **{name: value}))

    for name in ("rows", "counted"):
        for value in (-1, 5 * 6):
            assert refused(live, with_count(name, np.int32(value)))
    for name in ("errors", "spread"):
        assert refused(live, with_count(name, np.full_like(getattr(counts, name), 5_000)))
        assert refused(live, with_count(name, np.full_like(getattr(counts, name), -5_000)))
    for value in (-1, 30, 2**31 - 1):
        assert refused(live, replace(content, weight=np.int32(value)))


@pytest.mark.parametrize("form", list(FORMS))
def test_without_a_promise_numbers_only_have_to_be_finite_and_weights_possible(form: str) -> None:
    live = make(form, "none")
    (content,) = honest(live, 1)

    def with_update(value: float) -> CheckIn:
        return replace(content, update=trees.map(lambda leaf: np.full_like(leaf, value), content.update))

    assert not refused(live, with_update(LARGEST_FLOAT)) and not refused(live, with_update(-LARGEST_FLOAT))
    assert refused(live, with_update(5 * LARGEST_FLOAT)) and refused(live, with_update(-5 * LARGEST_FLOAT))
    assert refused(live, replace(content, weight=np.int32(-1)))
    assert refused(live, replace(content, weight=np.int32(5 * LARGEST_ROWS)))
    # What these devices send counts 1, however many rows they have.
    alike = form.startswith(("local-sgd", "scaffold", "dp-fedavg"))
    assert refused(live, replace(content, weight=np.int32(2))) == alike


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("form", list(FORMS))
def test_whatever_passes_leaves_the_model_finite(form: str, mode: str) -> None:
    """The worst that is accepted, over and over, by devices that claim no rows at all or as many as they may."""
    live = make(form, mode)
    part, alike = live.server.last.server, not live.server.last.sanitiser.weighs_rows
    (content,), server, row = honest(live, 1), part.init(DeviceCoins()), part.row()
    worst = LARGEST_FLOAT if mode == "none" else limits_of(live.plan).update.norm / trees.size(content.update)
    most_rows = live.server.schedule.most_rows or LARGEST_ROWS
    for number in range(50):
        signs = np.random.default_rng(number).choice((-1, 1), trees.size(content.update))
        kind, rows = np.float32 if mode == "none" else np.int32, np.int32(6 * (number % 2))
        weight = 1 if alike else number % 2 * most_rows
        counts: Any = content.counts
        if counts:
            counts = Tally(rows=rows, counted=rows, errors=rows, spread=np.array([rows, 0], np.int32))
        sent = CheckIn(update=(signs * worst).astype(kind), weight=np.int32(weight), counts=counts)
        assert not refused(live, sent)
        server, row = part.absorb(server, row, sent, np.int32(0))
        server, _ = part.commit(server)
        assert np.isfinite(model_of(live.server, server)).all()
        live.messages.check_out.decode(live.server_messages.check_out.encode(message(0, part.check_out(server))))
