"""local-sgd against steps written out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Algorithm, Counts
from crowdml.core import NUMPY, BadInput, CheckIn, Ops, trees
from crowdml.simulation.engine.jax_ops import JAX
from tests.support.by_hand import WEIGHTS, Ones, batch, gradient, told, walk
from tests.support.by_hand import algorithm as by_hand
from tests.support.phases import model_of, one_version, stepped

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
STEPS = "local-steps = 2\nlocal-batch = 2\n"


def algorithm(ops: Ops, settings: str = "", privacy: str = 'mode = "none"') -> Algorithm:
    return by_hand(ops, "local-sgd", settings, privacy)


def unchanged(made: Algorithm, server: Any) -> CheckIn:
    return CheckIn(update=model_of(made, server), weight=np.int32(1))


@BOTH
def test_a_device_sends_what_its_steps_changed_and_goes_on_counting(ops: Ops) -> None:
    made = algorithm(ops, STEPS + 'rate = { kind = "inverse-sqrt", c = 2.0, counter = "local-steps" }')
    release, device = stepped(made.last, told(), batch(ops), Ones())
    np.testing.assert_allclose(release.update[0]["w"], walk([2.0, 2 / math.sqrt(2)]), rtol=1e-5)
    assert int(device.work.steps) == 2
    release, device = stepped(made.last, told(), batch(ops), Ones(), device)
    np.testing.assert_allclose(release.update[0]["w"], walk([2 / math.sqrt(3), 1.0]), rtol=1e-5)
    assert (release.counts, release.count, int(release.rows)) == ((), (), 4)
    assert made.schedule.batch == made.schedule.buffer == 4


@pytest.mark.parametrize(("counter", "etas"), [("versions", 6.0), ("check-ins", 11.0), ("device-contacts", 1.0)])
def test_the_other_counters_stay_the_same_within_a_contact(counter: str, etas: float) -> None:
    rate = f'rate = {{ kind = "inverse", c = 2.0, counter = "{counter}" }}'
    made = algorithm(NUMPY, STEPS + "server-batch = 2\n" + rate)
    server: Any = made.last.server.init(Ones())
    for _ in range(5):
        server = one_version(made.last, server, [unchanged(made, server)] * 2, np.int32(0))
    broadcast = made.last.server.check_out(server)
    assert isinstance(broadcast.count, tuple) == (counter == "device-contacts")
    broadcast = replace(broadcast, parameters=({"w": WEIGHTS},))
    release, device = stepped(made.last, broadcast, batch(NUMPY), Ones())
    np.testing.assert_allclose(release.update[0]["w"], walk([2 / etas, 2 / etas]), rtol=1e-5)
    assert trees.leaves(device.work.contacts) == ([1] if counter == "device-contacts" else [])


def test_what_a_version_says_does_not_change_while_check_ins_arrive() -> None:
    rate = 'rate = { kind = "inverse", c = 2.0, counter = "check-ins" }'
    made = algorithm(NUMPY, STEPS + "server-batch = 3\n" + rate)
    part = made.last.server
    server: Any = part.init(Ones())
    after, _row = part.absorb(server, (), unchanged(made, server), np.int32(0))
    assert part.check_out(after).count == part.check_out(server).count == 1
    assert part.check_out(part.commit(after)[0]).count == 2


def test_a_devices_own_adagrad_remembers() -> None:
    rate = 'rate = { kind = "adagrad", c = 0.5, counter = "local-steps" }'
    made = algorithm(NUMPY, "local-steps = 1\nlocal-batch = 4\n" + rate)
    release, device = stepped(made.last, told(), batch(NUMPY), Ones())
    g = gradient(WEIGHTS, slice(0, 4))
    np.testing.assert_allclose(release.update[0]["w"], -0.5 * np.sign(g), rtol=1e-4)
    release, device = stepped(made.last, told(), batch(NUMPY), Ones(), device)
    np.testing.assert_allclose(release.update[0]["w"], -0.5 * np.sign(g) / math.sqrt(2), rtol=1e-4)
    np.testing.assert_allclose(device.work.memory[0]["w"], 2 * g**2, rtol=1e-4)


@BOTH
def test_the_server_adds_the_mean_change(ops: Ops) -> None:
    made = algorithm(ops, STEPS + "server-batch = 2\nradius = 3.0")
    assert not made.schedule.alone and not made.schedule.ready(Counts(received=1, version=0))
    assert made.schedule.ready(Counts(received=2, version=0))

    def sent(fill: float) -> CheckIn:
        return CheckIn(update=({"w": ops.xp.full((2, 2), fill, dtype="float32")},), weight=ops.xp.int32(1))

    server = one_version(made.last, made.last.server.init(Ones()), [sent(1.0), sent(2.0)], ops.xp.int32(0))
    np.testing.assert_allclose(model_of(made, server)[0]["w"], np.full((2, 2), 1.5))
    server = one_version(made.last, server, [sent(1.0)], ops.xp.int32(0))
    np.testing.assert_allclose(np.linalg.norm(model_of(made, server)[0]["w"]), 3.0, rtol=1e-6)  # the ball was reached


def test_without_steps_it_is_crowd_sgd() -> None:
    settings = 'local-steps = 0\nlocal-batch = 4\nrate = { kind = "inverse-sqrt", c = 2.0 }\nradius = 1000.0'
    other = 'batch = 4\nstatistics = false\nrate = { kind = "inverse-sqrt", c = 2.0 }'
    both = [algorithm(NUMPY, settings), by_hand(NUMPY, "crowd-sgd", other)]
    found = []
    for made in both:
        phase = made.last
        server: Any = phase.server.init(Ones())
        for _ in range(3):
            check_in, _ = phase.contribute(phase.server.check_out(server), phase.begin(), batch(NUMPY), Ones())
            server = one_version(phase, server, [check_in], np.int32(0))
        found.append(model_of(made, server)[0]["w"])
    assert np.abs(found[0]).max() > 0.1
    np.testing.assert_array_equal(*found)


NOISY = 'mode = "paper"\nmechanism = "gaussian"\nnoise-scale = 0.5\n'


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", [0.5, 0.5]),
        ('noise-unit = "vector"', [0.25, 0.25]),
        ('noise-sequence = "geometric"\nnoise-factor = 0.1', [0.5, 0.05]),
        ('noise-sequence = "rate"', [0.5, 0.5 / 3]),
    ],
)
def test_noise_of_a_given_size_is_added_once(more: str, expected: list[float]) -> None:
    rate = 'rate = { kind = "inverse", c = 2.0, counter = "local-steps" }'
    made = algorithm(NUMPY, STEPS + rate, privacy=NOISY + more)
    device = made.last.begin()
    for noise in expected:
        release, device = stepped(made.last, told(), batch(NUMPY), Ones(), device)
        coins = Ones()
        check_in, device = made.last.finish(told(), release, device, coins)
        added = check_in.update[0]["w"] - release.update[0]["w"]
        np.testing.assert_allclose(added, np.full((2, 2), noise), rtol=1e-4)
        assert coins.asked == ["change/0/w"] and check_in.counts == () and int(check_in.weight) == 1


@pytest.mark.parametrize(
    ("settings", "privacy", "where"),
    [
        ("local-steps = 0", 'mode = "none"', "algorithm.rate.counter"),
        (STEPS, 'mode = "paper"\nepsilon = 1.0\nclip = 1.0', "privacy.epsilon"),
        (STEPS, NOISY + "epsilon = 1.0", "privacy.noise-scale"),
        (STEPS, NOISY + "clip = 1.0", "privacy.clip"),
        (STEPS, NOISY + "noise-factor = 0.5", "privacy.noise-factor"),
        (STEPS, NOISY + 'noise-sequence = "geometric"', "privacy.noise-factor"),
        (STEPS + 'rate = { kind = "adagrad", c = 1.0 }', NOISY + 'noise-sequence = "rate"', "privacy.noise-sequence"),
    ],
)
def test_what_cannot_be_kept_is_refused(settings: str, privacy: str, where: str) -> None:
    with pytest.raises(BadInput) as caught:
        algorithm(NUMPY, settings, privacy)
    assert where in caught.value.where and caught.value.hint


def test_other_recipes_refuse_a_sequence() -> None:
    with pytest.raises(BadInput, match="same noise"):
        by_hand(NUMPY, "crowd-sgd", "", NOISY + 'noise-sequence = "rate"')
