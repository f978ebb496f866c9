"""Extensions from outside: everything that a task file names can be registered, and what is wrong is said in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import crowdml
from crowdml import Task
from crowdml.algorithms import RECIPES
from crowdml.algorithms.contract import Algorithm, DevicePart, one_phase
from crowdml.algorithms.rates import Rate, RateSettings, by_count
from crowdml.algorithms.recipe import Parts
from crowdml.algorithms.recipes.crowd_sgd import CROWD_SGD, CrowdSgdSettings, build
from crowdml.core import BadInput, Labels, Release, Settings, trees
from crowdml.data import Dataset
from crowdml.models.layers.layer import Layer, LayerSettings, no_parameters
from crowdml.models.losses import softmax
from crowdml.privacy.accounting import Event, round_up
from crowdml.privacy.noise.laws import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, GAUSSIAN, LAPLACE, SUM_LAWS
from crowdml.simulation import simulate
from crowdml.task import parse
from crowdml.task.plugins import register
from tests.support.extensions import forgotten

TASK = """
crowdml = 1
name = "outside"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
[crowd]
devices = 10
passes = 1
curve = 1
"""
LONGER = ("algorithm.rate={ kind = 'constant', c = 1.0 }", "algorithm.batch=5", "crowd.passes=10")
SOUND = "privacy={ mode = 'sound', mechanism = 'NAME', clip = 1.0, epsilon = 8.0, delta = DELTA, max-uses = 1 }"


@pytest.fixture(autouse=True)
def forgets() -> Iterator[None]:
    with forgotten():
        yield


def task(*changes: str) -> Task:
    return parse(TASK, "outside.toml", changes)


class TurningSettings(CrowdSgdSettings):
    kind: Literal["turning"] = "turning"  # type: ignore[assignment]


TURNING = replace(CROWD_SGD, settings=TurningSettings)


def refusal(change: Any, *changes: str) -> str:
    """Register a recipe and name it in a task; return what is said of it."""
    with pytest.raises(BadInput) as caught:
        register("turning", change)
        task("algorithm={ kind = 'turning' }", *changes)
    assert "\n" not in caught.value.what
    return str(caught.value)


# What can be registered.


def test_a_rate() -> None:
    class Halving(RateSettings):
        kind: Literal["halving"] = "halving"
        half: float = 200.0

        def build(self, c: Any, ops: Any) -> Rate:
            return by_count(lambda count: c * 2.0 ** (-ops.xp.float32(count) / self.half))

    register("halving", Halving)
    found = task("algorithm.rate={ kind = 'halving', c = 10.0, half = 300.0 }")
    assert found.algorithm.rate == Halving(c=10.0, half=300.0)
    assert simulate(found).test_error < 0.3
    assert task("algorithm={ kind = 'fedavg', rate = { kind = 'halving', c = 1.0 } }").algorithm.rate.half == 200


def test_a_layer_a_loss_and_a_model() -> None:
    class Softplus(LayerSettings):
        kind: Literal["softplus"] = "softplus"

        def build(self, shape: tuple[int, ...], ops: Any) -> Layer:
            return Layer(
                shape=shape,
                init=no_parameters,
                forward=lambda parameters, x: (ops.xp.logaddexp(x, 0), x),
                pull_back=lambda parameters, x, slope: slope * 0.5 * (1 + ops.xp.tanh(0.5 * x)),
            )

    def cooler(target: Any, ops: Any) -> Any:
        plain = softmax(target, ops)
        return replace(plain, slope=lambda outputs, labels: plain.slope(outputs / 2, labels) / 2)

    class Wide(crowdml.models.kinds.ModelSettings):
        kind: Literal["wide"] = "wide"

        def build(self, features: int, target: Any, ops: Any) -> Any:
            return crowdml.models.kinds.Mlp(layers=[50], top="cooler").build(features, target, ops)

    for name, thing in (("softplus", Softplus), ("cooler", cooler), ("wide", Wide)):
        register(name, thing)
    layers = "[{ kind = 'dense', size = 20 }, { kind = 'softplus' }, { kind = 'dense', size = 10 }]"
    found = task(
        f"model={{ kind = 'layers', layers = {layers}, loss = 'cooler' }}",
        *LONGER,
    )
    assert simulate(found).test_error < 0.5
    assert simulate(task("model={ kind = 'wide' }", *LONGER)).test_error < 0.5
    with pytest.raises(BadInput, match=r'did you mean "cooler"'):
        task("model={ kind = 'mlp', top = 'coolest' }")


def test_a_dataset_is_made_when_it_is_asked_for() -> None:
    made = []

    def coins() -> Dataset:
        """Heads or tails."""
        made.append(1)
        rows = np.random.default_rng(1).normal(size=(60, 2)).astype(np.float32)
        targets = (rows[:, 0] > 0).astype(np.int32)
        return Dataset(
            name="coins",
            train_rows=rows[:40],
            train_targets=targets[:40],
            test_rows=rows[40:],
            test_targets=targets[40:],
            target=Labels(names=("tails", "heads")),
        )

    register("coins", coins)
    data = "data={ dataset = 'coins', features = 2, labels = ['tails', 'heads'] }"
    found = task(data, "crowd.passes=20", "crowd.devices=2", "algorithm.batch=5")
    assert not made
    assert simulate(found).test_error < 0.2 and len(made) == 1
    register("broken", lambda: 3)
    with pytest.raises(BadInput, match='the dataset "broken": its function returns int, not a Dataset'):
        simulate(task(data.replace("coins", "broken")))
    register("failing", lambda: 1 / 0)
    with pytest.raises(BadInput, match='the dataset "failing" cannot be made: ZeroDivisionError'):
        simulate(task(data.replace("coins", "failing")))


def test_a_noise_law_in_all_modes_that_it_says() -> None:
    """The sum of two discrete Laplace draws of half the scale costs no more than one of them."""
    twice = replace(
        DISCRETE_LAPLACE,
        name="discrete-twice",
        draw=lambda coins, stage, scale, shape: (
            coins.discrete_laplace(f"{stage}/1", scale / 2, shape)
            + coins.discrete_laplace(f"{stage}/2", scale / 2, shape)
        ),
        event=lambda power, scale: Event.of_pure(round_up(2 * power / scale)),
    )
    register("twice", replace(LAPLACE, name="twice", scale=lambda epsilon, delta: 2 / epsilon, on_grid=twice))
    sound = SOUND.replace("NAME", "twice").replace("DELTA", "0.0")
    found = simulate(task(sound, "data.transform=[{ kind = 'norm', order = 1, at-most = 1.0 }]", "algorithm.batch=50"))
    assert 7.9 < found.privacy["sample"]["epsilon"] <= 8.0
    paper = "privacy={ mode = 'paper', mechanism = 'twice', clip = 1.0, epsilon = 8.0 }"
    assert simulate(task(paper)).privacy["paper_claim"]["epsilon"] == 8.0


def test_a_law_for_shares_of_a_sum() -> None:
    shares = replace(SUM_LAWS["discrete-gaussian"], name="cautious")
    grid = replace(DISCRETE_GAUSSIAN, name="cautious", in_sums=shares)
    register("gaussian-cautious", replace(GAUSSIAN, name="gaussian-cautious", on_grid=grid))
    terms = SOUND.replace("NAME", "gaussian-cautious").replace("DELTA", "1e-5")
    summed = ["secure-aggregation={ enabled = true, law = 'cautious' }", "algorithm={ kind = 'fedsgd', per-round = 8 }"]
    found = task(terms, *summed).built.last.sanitiser
    assert "cautious" in found.describe()["update"]
    with pytest.raises(BadInput, match=r'did you mean "cautious"'):
        task(terms, summed[0].replace("cautious", "cautios"), summed[1])


def test_the_same_again_changes_nothing() -> None:
    register("turning", TURNING)
    register("turning", TURNING)
    assert RECIPES["turning"] is TURNING


# What is wrong with it.


def test_a_name_that_is_taken() -> None:
    assert 'the algorithm "crowd-sgd" is taken' in refused("crowd-sgd", CROWD_SGD)
    register("turning", TURNING)
    assert 'the algorithm "turning" is taken' in refused("turning", replace(TURNING, live=False))
    assert 'the noise law "laplace" is taken' in refused("laplace", LAPLACE)
    assert 'the loss "softmax" is taken' in refused("softmax", softmax)
    assert 'the dataset "digits" is taken' in refused("digits", lambda: None)


def refused(name: Any, thing: Any) -> str:
    with pytest.raises(BadInput) as caught:
        register(name, thing)
    return str(caught.value)


def test_no_name_and_no_thing() -> None:
    for name in ("", "Turning", "heavy ball", " x", 3):
        assert "is no name" in refused(name, TURNING)
    for thing in (3, "recipe", Settings, RateSettings, lambda a, b, c, d: None):
        assert "cannot be registered" in refused("thing", thing)


def test_settings_without_kind() -> None:
    class Unkind(Settings):
        batch: int = 3

    said = refusal(replace(TURNING, settings=Unkind))
    assert 'the recipe "turning": its settings are not of this kind' in said and 'Literal["turning"]' in said
    assert "settings is no class of Settings" in refusal(replace(TURNING, settings=dict))  # type: ignore[arg-type]
    assert "not of this kind" in refused("other", TURNING)


def test_settings_that_do_not_stand_by_themselves() -> None:
    class Asking(Settings):
        kind: Literal["turning"] = "turning"
        angle: float

    assert "its settings do not stand by themselves" in refusal(replace(TURNING, settings=Asking))


def test_hyper_that_names_no_number() -> None:
    said = refusal(replace(TURNING, hyper={"rate": "rate.c", "angle": "angel"}))
    assert 'hyper says that "angle" is angel' in said
    assert "is rate, which is no number" in refusal(replace(TURNING, hyper={"rate": "rate"}))


def test_no_build_and_a_build_that_fails() -> None:
    assert "has no function build" in refusal(replace(TURNING, build=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda parts: 1 / 0, "fails in build: ZeroDivisionError"),
        (lambda parts: None, "build returns NoneType, not Algorithm"),
        (lambda parts: parts.settings.angle, "fails in build: AttributeError"),
    ],
)
def test_a_build_that_fails(made: Any, said: str) -> None:
    found = refusal(replace(TURNING, build=made))
    assert f'the recipe "turning"{":" * ("returns" in said)} {said}' in found and "changes" not in found


class Nothing(DevicePart):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def step(self, broadcast: Any, work: Any, batch: Any, coins: Any) -> Any:
        return self.answer(broadcast)


def with_device(answer: Any) -> Any:
    def made(parts: Parts) -> Algorithm:
        plain = build(parts)
        last = plain.last
        return one_phase(Nothing(answer), last.server, last.sanitiser, plain.schedule)

    return replace(TURNING, build=made)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda broadcast: 1 / 0, "fails in device.step: ZeroDivisionError: division by zero"),
        (lambda broadcast: None, "device.step returns NoneType, not tuple"),
        (lambda broadcast: (1, 2, 3), "device.step returns 3 things, not 2"),
        (lambda broadcast: ({}, ()), "device.step returns dict, not Release"),
        (lambda broadcast: (Release(update=broadcast.parameters), ()), "fails in device.step: TypeError"),  # type: ignore[call-arg]
        (
            lambda broadcast: (Release(update=np.zeros(3, np.float32), rows=np.int32(1)), ()),
            "device.step's update is [3]",
        ),
        (
            lambda broadcast: (Release(update=broadcast.parameters, rows=np.int32(1)), np.int32(1)),
            "what device.step remembers is int32[]",
        ),
    ],
)
def test_a_device_part_that_returns_something_else(answer: Any, said: str) -> None:
    assert said in refusal(with_device(answer), "algorithm.statistics=false")


def test_a_device_part_that_forgets_the_counts() -> None:
    forgetful = with_device(lambda broadcast: (Release(update=broadcast.parameters, rows=np.int32(1)), ()))
    assert "device.step's release has no counts" in refusal(forgetful)


def test_a_device_part_without_a_step() -> None:
    class Idle(DevicePart):
        pass

    def made(parts: Parts) -> Algorithm:
        plain = build(parts).last
        return one_phase(Idle(), plain.server, plain.sanitiser, build(parts).schedule)  # type: ignore[abstract]

    said = refusal(replace(TURNING, build=made))
    assert "fails in build: TypeError" in said and "abstract" in said


@pytest.mark.parametrize(
    ("function", "answer", "said"),
    [
        ("init", lambda *given: 1 / 0, "fails in server.init"),
        ("check_out", lambda server: {}, "server.check_out returns dict, not Broadcast"),
        ("absorb", lambda server, row, check_in, age: server, "server.absorb returns StepState, not tuple"),
        ("commit", lambda server: (server.parameters, {}), "server.commit's state is"),
        ("report", lambda server: server.parameters, "server.report returns tuple, not Report"),
    ],
)
def test_a_server_part_that_returns_something_else(function: str, answer: Any, said: str) -> None:
    def made(parts: Parts) -> Algorithm:
        plain = build(parts)
        server = plain.last.server
        other = type("Other", (type(server),), {function: staticmethod(answer)})(**vars(server))
        return one_phase(plain.last.device, other, plain.last.sanitiser, plain.schedule)

    found = refusal(replace(TURNING, build=made, live=False))
    assert said in found and 'the recipe "turning"' in found


def test_a_live_recipe_whose_server_needs_layers() -> None:
    def made(parts: Parts) -> Algorithm:
        parts.model.layers[0]
        return build(parts)

    assert "fails in build" in refusal(replace(TURNING, build=made))
    register("turned", replace(TURNING, settings=type_of("turned"), build=made, live=False))
    task("algorithm={ kind = 'turned' }")


def type_of(name: str) -> Any:
    return type("Named", (CrowdSgdSettings,), {"__annotations__": {"kind": Literal[name]}, "kind": name})


def test_a_rate_that_fails() -> None:
    def rate(name: str, made: Any) -> str:
        body = {"__annotations__": {"kind": Literal[name]}, "kind": name, "build": made}
        register(name, type(name.title(), (RateSettings,), body))
        with pytest.raises(BadInput) as caught:
            task(f"algorithm.rate={{ kind = '{name}', c = 1.0 }}")
        return str(caught.value)

    assert 'the rate "wild" fails in build: ZeroDivisionError' in rate("wild", lambda self, c, ops: 1 / 0)
    assert 'the rate "none": build returns NoneType, not Rate' in rate("none", lambda self, c, ops: None)
    summed = Rate(init=lambda w: (), step=lambda memory, update, count: (np.float32(1), memory))
    assert 'the rate "flat": the change that step returns is' in rate("flat", lambda self, c, ops: summed)
    forgets = Rate(init=lambda w: w, step=lambda memory, update, count: (update, ()))
    assert "the memory that step returns is nothing" in rate("lost", lambda self, c, ops: forgets)
    with pytest.raises(BadInput, match='the rate "idle" has no function build'):
        register("idle", type("Idle", (RateSettings,), {"__annotations__": {"kind": Literal["idle"]}, "kind": "idle"}))


def test_a_layer_and_a_loss_that_fail() -> None:
    class Bad(LayerSettings):
        kind: Literal["bad"] = "bad"

        def build(self, shape: tuple[int, ...], ops: Any) -> Layer:
            return Layer(
                shape=shape, init=no_parameters, forward=lambda parameters, x: x / 0 + "", pull_back=lambda p, m, s: s
            )

    register("bad", Bad)
    layers = "[{ kind = 'bad' }, { kind = 'dense', size = 10 }]"
    with pytest.raises(BadInput, match='the layer "bad" fails in'):
        task(f"model={{ kind = 'layers', layers = {layers} }}")
    register("worse", lambda target, ops: math.pi)
    with pytest.raises(BadInput, match='the loss "worse" fails in build'):
        task("model={ kind = 'mlp', top = 'worse' }")


def test_a_noise_law_that_contradicts_itself() -> None:
    assert 'the noise law "laplace" cannot be called "other"' in refused("other", LAPLACE)
    assert "its norm is 1 or 2, not 3" in refused("cubic", replace(LAPLACE, name="cubic", order=3))
    wrong = replace(LAPLACE, name="mixed", on_grid=DISCRETE_GAUSSIAN)
    assert "on_grid is no law of integers in the same norm" in refused("mixed", wrong)


def test_a_recipe_that_cannot_be_compiled() -> None:
    def made(parts: Parts) -> Algorithm:
        float(parts.hyper["rate"])
        return build(parts)

    register("turning", replace(TURNING, build=made))
    with pytest.raises(BadInput, match='the recipe "turning" cannot be compiled: '):
        simulate(task("algorithm={ kind = 'turning' }"))


# Two parts of one's own.


@pytest.mark.parametrize("terms", ["mode = 'none'", "mode = 'paper', mechanism = 'gaussian', noise-scale = 0.01"])
def test_feddyn_compiled_and_step_by_step(terms: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from crowdml.simulation.stepwise import simulate_stepwise

    monkeypatch.setenv("CROWDML_PLUGINS", str(Path(__file__).parents[2] / "examples/plugins/feddyn.py"))
    found = task(
        "algorithm={ kind = 'feddyn', per-round = 5, rate = { kind = 'constant', c = 1.0 } }",
        f"privacy={{ {terms} }}",
        "crowd.passes=4",
    )
    compiled, stepwise = simulate(found, seed=3), simulate_stepwise(found, seed=3)
    for one, other in zip(trees.leaves(compiled.parameters), trees.leaves(stepwise.parameters), strict=True):
        assert np.abs(one - other).max() <= 1e-5 * np.abs(other).max()
    assert compiled.test_error < 0.3
