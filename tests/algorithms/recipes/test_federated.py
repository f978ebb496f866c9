"""What differs from fedavg, against steps written out by hand: pulls, servers with a memory, momentum, own models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, BadInput, trees
from crowdml.simulation import simulate
from crowdml.simulation.baselines import COMMON
from crowdml.simulation.engine.data_tables import _can_be_split
from crowdml.task import Task, parse
from tests.support.by_hand import WEIGHTS, Ones, algorithm, batch, gradient, task, told
from tests.support.phases import model_of, one_version, stepped

SOUND = 'unit = "device"\nmechanism = "gaussian"\nclip = 1.0\nepsilon = 8.0\ndelta = 1e-6\n[stop]\nmax-releases = 5'
STEP = 'local-batch = 1\nper-round = 2\nrate = { kind = "constant", c = 0.5 }'
MOMENTUM = 'local-batch = 1\nper-round = 2\nrate = { kind = "momentum", c = 0.5, momentum = 0.5 }'
DIGITS = """
crowdml = 1
name = "digits"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
[privacy]
mode = "none"
[crowd]
devices = 10
passes = 10
curve = 1
"""


def digits(*changes: str) -> Task:
    return parse(DIGITS, changes=list(changes))


def walked(settings: str, kind: str, pull: float = 0.0, momentum: float = 0.0) -> Any:
    """Four steps on one row each, from WEIGHTS."""
    w, v = WEIGHTS.astype(float), 0.0
    for at in range(4):
        v = momentum * v + gradient(w, slice(at, at + 1)) + pull * (w - WEIGHTS)
        w = w - 0.5 * v
    release, device = stepped(algorithm(NUMPY, kind, settings).last, told(count=np.int32(1)), batch(NUMPY), Ones())
    np.testing.assert_allclose(release.update[0]["w"], w - WEIGHTS, rtol=1e-5, atol=1e-7)
    return device


def test_fedprox_is_pulled_back_to_what_was_checked_out() -> None:
    walked(f"{STEP}\nmu = 0.7", "fedprox", pull=0.7)


def test_momentum_is_kept_or_begins_anew() -> None:
    kept = walked(MOMENTUM, "fedavg", momentum=0.5)
    assert [leaf.shape for leaf in trees.leaves(kept.work)] == [(2, 2)]
    anew = walked(f'{MOMENTUM}\nrate-memory = "reset"', "fedavg", momentum=0.5)
    assert trees.leaves(anew.work) == []
    made = algorithm(NUMPY, "fedavg", MOMENTUM).last
    first, _ = stepped(made, told(count=np.int32(1)), batch(NUMPY), Ones())
    second, _ = stepped(made, told(count=np.int32(1)), batch(NUMPY), Ones(), kept)
    assert np.abs(first.update[0]["w"] - second.update[0]["w"]).max() > 0.01


@pytest.mark.parametrize("counter", ["versions", "check-ins", "device-contacts", "local-steps"])
@pytest.mark.parametrize("memory", ["keep", "reset"])
def test_adam_is_corrected_by_the_steps_that_it_remembers(memory: str, counter: str) -> None:
    settings = f"rate = {{ kind = 'adam', c = 0.1, counter = '{counter}' }}\nrate-memory = '{memory}'"
    made = algorithm(NUMPY, "fedavg", f"local-batch = 1\nper-round = 2\n{settings}").last
    device, mean, square, t = None, 0.0, 0.0, 0
    for version in (20, 21):  # far from how often this device has stepped
        release, device = stepped(made, told(count=np.int32(version)), batch(NUMPY), Ones(), device)
        w = WEIGHTS.astype(float)
        if memory == "reset":
            mean, square, t = 0.0, 0.0, 0
        for at in range(4):
            slope, t = gradient(w, slice(at, at + 1)), t + 1
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
            w = w - 0.1 * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(release.update[0]["w"], w - WEIGHTS, rtol=1e-4, atol=1e-6)


def test_adam_of_a_server_is_corrected_by_its_own_steps() -> None:
    models = []
    for counter in ("versions", "check-ins"):
        rate = f"rate = {{ kind = 'adam', c = 0.5, counter = '{counter}' }}"
        made = algorithm(NUMPY, "local-sgd", f"local-steps = 0\nlocal-batch = 4\nserver-batch = 2\n{rate}")
        server = made.last.server.init(Ones())
        for _ in range(2):
            told_out = made.last.server.check_out(server)
            check_ins = [made.last.contribute(told_out, made.last.begin(), batch(NUMPY), Ones())[0] for _ in range(2)]
            server = one_version(made.last, server, check_ins, np.int32(0))
        models.append(model_of(made, server)[0]["w"])
    np.testing.assert_array_equal(*models)


def test_a_server_with_a_rate_takes_a_part_of_the_change() -> None:
    models = []
    for server in ("{ kind = 'constant', c = 1.0 }", "{ kind = 'constant', c = 0.25 }"):
        made = algorithm(NUMPY, "fedavg", f"{STEP}\nserver = {server}")
        part = made.last.server
        begun = part.init(Ones())
        check_ins = [
            made.last.contribute(part.check_out(begun), made.last.begin(), batch(NUMPY, real), Ones())[0]
            for real in (2, 4)
        ]
        models.append(model_of(made, one_version(made.last, begun, check_ins, np.int32(0)))[0]["w"])
    np.testing.assert_allclose(0.25 * models[0], models[1], rtol=1e-6)


def test_what_a_server_cannot_count_is_refused() -> None:
    with pytest.raises(BadInput, match='the server takes one step in each round: its rate cannot count "local-steps"'):
        task("fedavg", f'{STEP}\nserver = {{ kind = "inverse", c = 1.0, counter = "local-steps" }}')


def test_only_steps_that_are_multiples_of_a_gradient_leave_columns_out() -> None:
    plain = digits()
    assert _can_be_split(plain.built)
    momentum = "algorithm.rate={ kind = 'momentum', c = 1.0 }"
    for changes in (["algorithm.kind=fedprox"], [momentum, "algorithm.rate-memory=reset"], ["algorithm.kind=ditto"]):
        assert not _can_be_split(digits(*changes).built)
    assert _can_be_split(digits("algorithm.kind=fedadam").built)


def test_sound_terms_claim_stability_of_plain_steps_only() -> None:
    def moved(kind: str) -> float | None:
        terms = "mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-6, max-uses = 5"
        made = digits(
            f"algorithm.kind={kind}",
            f"privacy={{ {terms} }}",
            "crowd.passes=5",
            "stop.max-releases=5",
            "algorithm.rate={ kind = 'constant', c = 0.5 }",
        )
        return made.calibrated.last.moved_by_sample

    assert moved("fedavg") is not None and moved("fedadam") == moved("fedavg")
    assert moved("fedprox") is None and moved("scaffold") is None


@pytest.mark.parametrize("kind", ["fedprox", "fedavgm", "fedyogi", "fedbuff", "scaffold", "ditto"])
def test_every_one_has_a_sound_form(kind: str) -> None:
    made = task(kind, privacy=SOUND)
    assert made.calibrated.terms.promised and made.recipe.live
    last = made.built.last
    release, _ = stepped(last, last.server.check_out(last.server.init(Ones())), _fifty(), Ones())
    assert all(leaf.dtype == np.int32 for leaf in trees.leaves(release.update))


def _fifty() -> Any:
    few = batch(NUMPY)
    return trees.map(lambda leaf: np.concatenate([leaf] * 12 + [leaf[:2]]), few)


def test_a_buffer_cannot_be_aggregated_securely() -> None:
    with pytest.raises(BadInput, match="fedbuff needs more than the sum of its check-ins"):
        digits("algorithm.kind=fedbuff", "secure-aggregation.enabled=true")


def test_a_control_variate_needs_a_constant_rate() -> None:
    with pytest.raises(BadInput, match='a control variate is a step over a constant rate, and "momentum" is none'):
        task("scaffold", 'rate = { kind = "momentum", c = 1.0 }')


def test_control_variates_are_what_steps_were_on_average() -> None:
    made = algorithm(NUMPY, "scaffold", STEP).last
    begun = made.server.check_out(made.server.init(Ones()))
    release, device = stepped(made, begun, batch(NUMPY, 3), Ones())
    w, slopes = begun.parameters[0]["w"].astype(float), []
    for at in range(3):
        slopes.append(gradient(w, slice(at, at + 1)))
        w = w - 0.5 * slopes[-1]
    np.testing.assert_allclose(device.work[0]["w"], np.mean(slopes, axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(release.update.control[0]["w"], device.work[0]["w"], rtol=1e-5, atol=1e-7)


def test_a_personal_model_is_pulled_towards_the_common_one() -> None:
    made = algorithm(NUMPY, "ditto", f"{STEP}\npull = 0.3\npersonal-rate = 0.2").last
    _, device = stepped(made, told(count=np.int32(1)), batch(NUMPY, 3), Ones())
    v = WEIGHTS.astype(float)
    for _ in range(2):
        for at in range(3):
            v = v - 0.2 * (gradient(v, slice(at, at + 1)) + 0.3 * (v - WEIGHTS))
        found: Any = made.device.model(device.work)
        np.testing.assert_allclose(found[0]["w"], v, rtol=1e-5, atol=1e-7)
        _, device = stepped(made, told(count=np.int32(1)), batch(NUMPY, 3), Ones(), device)


def test_personal_models_are_measured_beside_the_common_one() -> None:
    found = simulate(
        digits(
            "algorithm={ kind = 'ditto', rate = { kind = 'constant', c = 1.0 }, pull = 0.1 }",
            "crowd.partition={ kind = 'shards' }",
            "crowd.personal={ held-out = 0.2 }",
        ),
        engine="numpy",
    )
    assert set(found.baselines) == {COMMON, "each device's own model"}
    # Two labels each: far easier for a model of one's own.
    assert found.baselines["each device's own model"][0] < 0.5 * found.baselines[COMMON][0]
    assert found.parameters[0]["w"].shape == (1, 10, 64)


def test_ditto_counts_no_steps() -> None:
    with pytest.raises(BadInput, match="a device's own model goes through its rows: it cannot count steps"):
        task("ditto", "local-steps = 5")
