"""local-sgd, fedavg and fedsgd against steps written out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import Algorithm, Counts, parse
from crowdml.core import NUMPY, BadInput, Batch, Ops
from crowdml.simulation.jax_ops import JAX

BOTH = pytest.mark.parametrize("ops", [NUMPY, JAX], ids=lambda ops: ops.name)
ROWS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [2.0, 1.0]], np.float32)
LABELS = np.array([0, 1, 1, 0], np.int32)
WEIGHTS = np.array([[0.5, -0.5], [0.1, 0.2]], np.float32)


def algorithm(
    ops: Ops, own: str = "", kind: str = "local-sgd", privacy: str = 'mode = "none"', model: str = ""
) -> Algorithm:
    text = f"""
crowdml = 1
name = "by-hand"
[data]
features = 2
labels = ["a", "b"]
[model]
kind = "softmax"
{model}
[algorithm]
kind = "{kind}"
{own}
[privacy]
{privacy}
"""
    return parse(text).build(ops)


def batch(ops: Ops, real: int = 4) -> Batch:
    mask = (np.arange(4) < real).astype(np.float32)
    return Batch(rows=ops.xp.asarray(ROWS), labels=ops.xp.asarray(LABELS), mask=ops.xp.asarray(mask))


def gradient(w: Any, chosen: slice) -> Any:
    x, y = ROWS[chosen].astype(float), LABELS[chosen]
    scores = np.exp(x @ w.T)
    return (scores / scores.sum(axis=1, keepdims=True) - np.eye(2)[y]).T @ x / len(x)


def walk(etas: list[float], size: int = 2) -> Any:
    """The change after one step per part of the rows, with the given rates."""
    w = WEIGHTS.astype(float)
    for at, eta in enumerate(etas):
        w = w - eta * gradient(w, slice(at * size, (at + 1) * size))
    return w - WEIGHTS


class Ones:
    """Coins whose every draw is 1."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def draw(self, stage: str, *arguments: Any) -> Any:
        self.asked.append(stage)
        return np.ones(arguments[-1], np.float32)

    uniform = laplace = gaussian = discrete_laplace = draw


STEPS = "local-steps = 2\nlocal-batch = 2\n"


@BOTH
def test_a_device_sends_what_its_steps_changed_and_goes_on_counting(ops: Ops) -> None:
    made = algorithm(ops, STEPS + 'rate = { kind = "inverse-sqrt", c = 2.0, counter = "local-steps" }')
    device = made.device_init()
    release, device = made.device_step(({"w": WEIGHTS},), device, batch(ops), Ones())
    np.testing.assert_allclose(release["change"][0]["w"], walk([2.0, 2 / math.sqrt(2)]), rtol=1e-5)
    assert int(device["steps"]) == 2
    release, device = made.device_step(({"w": WEIGHTS},), device, batch(ops), Ones())
    np.testing.assert_allclose(release["change"][0]["w"], walk([2 / math.sqrt(3), 1.0]), rtol=1e-5)
    assert set(release) == {"change"} and made.batch == made.buffer == 4


@pytest.mark.parametrize(("counter", "etas"), [("versions", 6.0), ("check-ins", 11.0), ("device-contacts", 1.0)])
def test_the_other_counters_stay_the_same_within_a_contact(counter: str, etas: float) -> None:
    rate = f'rate = {{ kind = "inverse", c = 2.0, counter = "{counter}" }}'
    made = algorithm(NUMPY, STEPS + "server-batch = 2\n" + rate)
    server: Any = made.init(Ones())
    for _ in range(5):
        for _ in range(2):
            message = {"change": made.parameters(server), "weight": np.int32(1)}
            server, _row = made.absorb(server, (), message, np.int32(0))
        server, _measured = made.commit(server)
    broadcast: Any = made.check_out(server)
    if counter == "device-contacts":
        assert isinstance(broadcast, tuple)
        broadcast = ({"w": WEIGHTS},)
    else:
        broadcast = broadcast | {"parameters": ({"w": WEIGHTS},)}
    release, device = made.device_step(broadcast, made.device_init(), batch(NUMPY), Ones())
    np.testing.assert_allclose(release["change"][0]["w"], walk([2 / etas, 2 / etas]), rtol=1e-5)
    assert device.get("contacts", None) == (1 if counter == "device-contacts" else None)


def test_what_a_version_says_does_not_change_while_check_ins_arrive() -> None:
    rate = 'rate = { kind = "inverse", c = 2.0, counter = "check-ins" }'
    made = algorithm(NUMPY, STEPS + "server-batch = 3\n" + rate)
    server: Any = made.init(Ones())
    message = {"change": made.parameters(server), "weight": np.int32(1)}
    after, _row = made.absorb(server, (), message, np.int32(0))
    assert made.check_out(after)["count"] == made.check_out(server)["count"] == 1
    assert made.check_out(made.commit(after)[0])["count"] == 2


def test_a_devices_own_adagrad_remembers() -> None:
    rate = 'rate = { kind = "adagrad", c = 0.5, counter = "local-steps" }'
    made = algorithm(NUMPY, "local-steps = 1\nlocal-batch = 4\n" + rate)
    release, device = made.device_step(({"w": WEIGHTS},), made.device_init(), batch(NUMPY), Ones())
    g = gradient(WEIGHTS, slice(0, 4))
    np.testing.assert_allclose(release["change"][0]["w"], -0.5 * np.sign(g), rtol=1e-4)
    release, device = made.device_step(({"w": WEIGHTS},), device, batch(NUMPY), Ones())
    np.testing.assert_allclose(release["change"][0]["w"], -0.5 * np.sign(g) / math.sqrt(2), rtol=1e-4)
    np.testing.assert_allclose(device["memory"][0]["w"], 2 * g**2, rtol=1e-4)


@BOTH
def test_the_server_adds_the_mean_change(ops: Ops) -> None:
    made = algorithm(ops, STEPS + "server-batch = 2\nradius = 3.0")
    assert not made.always_ready and not made.ready(Counts(received=1, version=0))
    assert made.ready(Counts(received=2, version=0))
    server = made.init(Ones())
    for fill in (1.0, 2.0):
        message = {"change": ({"w": ops.xp.full((2, 2), fill, dtype="float32")},), "weight": ops.xp.int32(1)}
        server, _row = made.absorb(server, (), message, ops.xp.int32(0))
    server, _measured = made.commit(server)
    np.testing.assert_allclose(made.parameters(server)[0]["w"], np.full((2, 2), 1.5))
    server, _row = made.absorb(server, (), {"change": ({"w": ops.xp.ones((2, 2))},), "weight": 1}, ops.xp.int32(0))
    server, _measured = made.commit(server)
    np.testing.assert_allclose(np.linalg.norm(made.parameters(server)[0]["w"]), 3.0, rtol=1e-6)  # the ball was reached


def test_without_steps_it_is_crowd_sgd() -> None:
    own = 'local-steps = 0\nlocal-batch = 4\nrate = { kind = "inverse-sqrt", c = 2.0 }\nradius = 1000.0'
    made, other = (
        algorithm(NUMPY, own),
        algorithm(NUMPY, 'batch = 4\nstatistics = false\nrate = { kind = "inverse-sqrt", c = 2.0 }', "crowd-sgd"),
    )
    states: list[Any] = [made.init(Ones()), other.init(Ones())]
    for _ in range(3):
        for at, own_algorithm in enumerate((made, other)):
            release, _ = own_algorithm.device_step(
                own_algorithm.check_out(states[at]), own_algorithm.device_init(), batch(NUMPY), Ones()
            )
            check_in = own_algorithm.sanitise(release, Ones())
            states[at], _ = own_algorithm.commit(own_algorithm.absorb(states[at], (), check_in, np.int32(0))[0])
    one, two = made.parameters(states[0])[0]["w"], other.parameters(states[1])[0]["w"]
    assert np.abs(one).max() > 0.1
    np.testing.assert_array_equal(one, two)


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
    device = made.device_init()
    for noise in expected:
        release, device = made.device_step(({"w": WEIGHTS},), device, batch(NUMPY), Ones())
        coins = Ones()
        check_in = made.sanitise(release, coins)
        added = check_in["change"][0]["w"] - release["change"][0]["w"]
        np.testing.assert_allclose(added, np.full((2, 2), noise), rtol=1e-4)
        assert coins.asked == ["change/0/w"] and set(check_in) == {"change"}


@BOTH
def test_fedavg_steps_over_real_rows_only_and_sends_weight_times_change(ops: Ops) -> None:
    own = 'local-batch = 1\nper-round = 2\nrate = { kind = "constant", c = 0.5 }'
    made = algorithm(ops, own, "fedavg", model="regularisation = 0.1")
    plain = algorithm(ops, own, "fedavg")
    device = plain.device_init()
    release, _ = plain.device_step({"count": 1, "parameters": ({"w": WEIGHTS},)}, device, batch(ops, 3), Ones())
    np.testing.assert_allclose(release["change"][0]["w"], walk([0.5] * 3, 1), rtol=1e-5, atol=1e-7)
    check_in = plain.sanitise(release, Ones())
    assert int(check_in["weight"]) == 3
    np.testing.assert_allclose(check_in["change"][0]["w"], 3 * walk([0.5] * 3, 1), rtol=1e-5, atol=1e-7)
    # The regulariser does not act on padding either.
    few, _ = made.device_step({"count": 1, "parameters": ({"w": WEIGHTS},)}, device, batch(ops, 0), Ones())
    np.testing.assert_array_equal(few["change"][0]["w"], np.zeros((2, 2)))


def test_fedsgd_averages_gradients_by_size() -> None:
    made = algorithm(NUMPY, 'per-round = 2\nrate = { kind = "constant", c = 0.5 }', "fedsgd")
    server: Any = made.init(Ones())
    for real in (1, 3):
        release, _ = made.device_step(made.check_out(server), made.device_init(), batch(NUMPY, real), Ones())
        server, _row = made.absorb(server, (), made.sanitise(release, Ones()), np.int32(0))
    server, _measured = made.commit(server)
    zero = np.zeros((2, 2))
    expected = -0.5 * (gradient(zero, slice(0, 1)) + 3 * gradient(zero, slice(0, 3))) / 4
    np.testing.assert_allclose(made.parameters(server)[0]["w"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("own", "privacy", "where"),
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
def test_what_cannot_be_kept_is_refused(own: str, privacy: str, where: str) -> None:
    with pytest.raises(BadInput) as caught:
        algorithm(NUMPY, own, privacy=privacy)
    assert where in caught.value.where and caught.value.hint


def test_other_recipes_refuse_a_sequence() -> None:
    with pytest.raises(BadInput, match="same noise"):
        algorithm(NUMPY, "", "crowd-sgd", NOISY + 'noise-sequence = "rate"')
