"""Acceptance: whatever an honest device sends passes, for every recipe whose check-ins are seen one by one; what is far
beyond does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import RECIPES, parse
from crowdml.algorithms.acceptance import LARGEST_FLOAT, LARGEST_ROWS, Acceptance
from crowdml.algorithms.live import LiveTask, assemble
from crowdml.core import Array, Batch, trees
from crowdml.core.errors import MalformedMessage
from crowdml.device import DeviceCoins
from crowdml.protocol import message

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
}
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

    def discrete_gaussian(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        return self._take(super().discrete_gaussian, stage, scale, shape)


def make(form: str, mode: str) -> LiveTask:
    changes = [f"algorithm={{ {FORMS[form]} }}", *MODES[mode]]
    if mode != "none":
        changes += ["stop.max-releases=4", "crowd.passes=3"]
        changes += ["privacy.statistics-epsilon=0.4"] if form == "crowd-sgd" else []
    return assemble(parse(TASK, changes=changes), [])


def honest(live: LiveTask, count: int) -> Iterator[Any]:
    """Yield what a device sends, from rows far longer than any clip."""
    algorithm, draws = live.algorithm, np.random.default_rng(1)
    size = max(algorithm.batch, algorithm.rounds.multiple if algorithm.rounds else 1, 4)
    broadcast, coins = live.messages.check_out.example["content"], Pool()
    for number in range(count):
        if number % 1000 == 0:
            rows = (50 * draws.standard_normal((size, 3))).astype(np.float32)
            labels = draws.integers(0, 2, size).astype(np.int32)
            batch = Batch(rows=rows, labels=labels, mask=np.ones(size, np.float32))
            release, _ = algorithm.device_step(broadcast, algorithm.device_init(), batch, coins)
        yield algorithm.sanitise(release, coins)


def test_every_recipe_whose_check_ins_are_seen_is_tried() -> None:
    seen = {name for name, recipe in RECIPES.items() if recipe.live and not recipe.sums_only}
    assert seen == {form.split(",")[0] for form in FORMS}


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("form", list(FORMS))
def test_ten_thousand_honest_check_ins_pass(form: str, mode: str) -> None:
    """False alarm: 12 × 10⁴ check-ins at 1e-9 each, so about one run in 8,000."""
    live = make(form, mode)
    acceptance = Acceptance.of(live.server, live.plan)
    for number, content in enumerate(honest(live, 100 if mode == "none" else SENT)):
        if number < 20:  # the server reads it from the wire, with parameters as one vector
            body = live.messages.check_in.encode(message(0, content))
            acceptance.require(live.server_messages.check_in.decode(body)["content"])
        acceptance.require(content)


def refused(live: LiveTask, content: Any) -> bool:
    try:
        Acceptance.of(live.server, live.plan).require(content)
    except MalformedMessage:
        return True
    return False


@pytest.mark.parametrize("mode", ["gaussian", "laplace"])
@pytest.mark.parametrize("form", list(FORMS))
def test_integers_and_norms_five_times_beyond_the_limit_are_refused(form: str, mode: str) -> None:
    live = make(form, mode)
    (content,), limits = honest(live, 1), Acceptance.of(live.server, live.plan).limits
    number = int(content.get("samples", 0)) if limits.by_rows else 1
    most, sends = limits.update.most(number), limits.sends
    longest = limits.update.norm + limits.update.norm_each * number
    flat = trees.size(content[sends])

    def with_update(values: Any) -> Any:
        spread = iter(np.asarray(values, np.int32))
        return content | {
            sends: trees.map(
                lambda leaf: np.array([next(spread) for _ in range(leaf.size)], np.int32).reshape(leaf.shape),
                content[sends],
            )
        }

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
    counts = content.get("counts", {})
    for name in ("rows", "counted"):
        for value in (-1, 5 * 6):
            assert refused(live, content | {"counts": counts | {name: np.int32(value)}})
    for name in ("errors", "labels"):
        assert refused(live, content | {"counts": counts | {name: np.full_like(counts[name], 5_000)}})
        assert refused(live, content | {"counts": counts | {name: np.full_like(counts[name], -5_000)}})
    for value in (-1, 30, 2**31 - 1):
        assert refused(live, content | {"samples": np.int32(value)})


@pytest.mark.parametrize("form", list(FORMS))
def test_without_a_promise_numbers_only_have_to_be_finite_and_weights_possible(form: str) -> None:
    live = make(form, "none")
    (content,) = honest(live, 1)
    update = next(name for name in ("gradient", "change") if name in content)

    def with_update(value: float) -> Any:
        return content | {update: trees.map(lambda leaf: np.full_like(leaf, value), content[update])}

    assert not refused(live, with_update(LARGEST_FLOAT)) and not refused(live, with_update(-LARGEST_FLOAT))
    assert refused(live, with_update(5 * LARGEST_FLOAT)) and refused(live, with_update(-5 * LARGEST_FLOAT))
    if "weight" in content:
        assert refused(live, content | {"weight": np.int32(-1)})
        assert refused(live, content | {"weight": np.int32(5 * LARGEST_ROWS)})
        assert refused(live, content | {"weight": np.int32(2)}) == (live.server.rounds is None)


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("form", list(FORMS))
def test_whatever_passes_leaves_the_model_finite(form: str, mode: str) -> None:
    """The worst that is accepted, over and over, by devices that claim no rows at all or as many as they may."""
    live = make(form, mode)
    acceptance, server = Acceptance.of(live.server, live.plan), live.server.init(DeviceCoins())
    (content,), row = honest(live, 1), live.server.row_init()
    update = next(name for name in ("gradient", "change") if name in content)
    worst = LARGEST_FLOAT if mode == "none" else acceptance.limits.update.norm / trees.size(content[update])
    for number in range(50):
        signs = np.random.default_rng(number).choice((-1, 1), trees.size(content[update]))
        kind = np.float32 if mode == "none" else np.int32
        sent: dict[str, Any] = {update: (signs * worst).astype(kind)}
        sent |= {name: np.int32(number % 2) for name in ("samples",) if name in content}
        if "weight" in content:
            sent["weight"] = np.int32(1 if acceptance.alike or mode != "none" else number % 2 * acceptance.rows)
        if "counts" in content:
            rows = np.int32(6 * (number % 2))
            sent["counts"] = {"rows": rows, "counted": rows, "errors": rows, "labels": np.array([rows, 0], np.int32)}
        acceptance.require(sent)
        server, row = live.server.absorb(server, row, sent, np.int32(0))
        server, _ = live.server.commit(server)
        assert np.isfinite(live.server.parameters(server)).all()
        live.messages.check_out.decode(live.server_messages.check_out.encode(message(0, live.server.check_out(server))))
