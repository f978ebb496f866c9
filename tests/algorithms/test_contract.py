"""The contract: every recipe keeps it, phases follow each other, and speed hints change nothing but speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdml.algorithms import RECIPES, Algorithm, OnArrival, SpeedHints
from crowdml.algorithms.conformity import require_conforming
from crowdml.core import NUMPY, Batch, trees
from crowdml.core.ops import ZeroCoins
from crowdml.simulation import simulate
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import numbers, prepare
from crowdml.simulation.stepwise import run_stepwise
from crowdml.simulation.timeline import make_timeline
from crowdml.task import Task, parse
from tests.support.phases import stepped
from tests.support.simulated import same_bits
from tests.support.two_labels import TWO_LABELS, odd_digits

TASK = """
crowdml = 1
name = "contract"
[data]
dataset = "digits"
features = 64
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{ kind = "scale", by = 0.0625 }, { kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "softmax"
regularisation = 0.001
[algorithm]
kind = "KIND"
[privacy]
mode = "none"
[crowd]
devices = 10
passes = 2
curve = 2
"""
SMALL = """
crowdml = 1
name = "contract"
[data]
features = 3
labels = ["no", "yes"]
transform = [{ kind = "norm", order = 2, at-most = 1.0 }]
[model]
kind = "logistic"
[algorithm]
kind = "KIND"
[privacy]
mode = "none"
[stop]
max-releases = 3
[crowd]
devices = 4
"""
SOUND = "privacy={ mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-5, max-uses = 6 }"
BOUNDED = SOUND.replace("clip = 1.0, ", "")
"""For recipes that bound their messages by themselves."""
FEDERATED = ("fedprox", "fedavgm", "fedadam", "fedyogi", "fedbuff", "scaffold", "ditto")
"""Recipes that differ from fedavg by a part or a line: they share a file of tests."""
MODES = {
    f"{kind}, {mode}": (
        kind,
        [] if mode == "none" else [SOUND if recipe.releases(recipe.settings()).bound is None else BOUNDED],
    )
    for kind, recipe in RECIPES.items()
    for mode in (("none", "sound") if recipe.releases(recipe.settings()).on_grid else ("none",))
}
SEED = trial_seed(3, 0)


def small(case: str) -> Task:
    kind, changes = MODES[case]
    return parse(SMALL.replace("KIND", kind), changes=changes)


def batch_of(algorithm: Algorithm, number: int) -> Batch:
    rng, size = np.random.default_rng(number), max(algorithm.schedule.batch, 4)
    size += -size % algorithm.schedule.multiple
    rows = rng.standard_normal((size, 3)).astype(np.float32)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    mask = np.ones(size, np.float32)
    return Batch(rows=rows, targets=rng.integers(0, 2, size).astype(np.int32), mask=mask)


def test_every_recipe_has_a_file_of_tests() -> None:
    here = Path(__file__).parent / "recipes"
    files = {kind: "federated" if kind in FEDERATED else kind.replace("-", "_") for kind in RECIPES}
    assert all((here / f"test_{file}.py").exists() for file in files.values())
    shared = (here / "test_federated.py").read_text(encoding="utf-8")
    assert all(f'"{kind}"' in shared for kind in FEDERATED)


@pytest.mark.parametrize("case", MODES)
def test_a_recipe_keeps_the_contract(case: str) -> None:
    task = small(case)
    require_conforming(case, lambda: task.build(NUMPY), task.model_for(NUMPY).zeros(), task.features)


@pytest.mark.parametrize("case", MODES)
def test_contribute_is_step_and_finish(case: str) -> None:
    algorithm = small(case).build(NUMPY)
    phase, batch = algorithm.last, batch_of(algorithm, 1)
    broadcast = phase.server.check_out(phase.server.init(ZeroCoins()))
    at_once = phase.contribute(broadcast, phase.begin(), batch, HashCoins(SEED, 1, NUMPY))
    release, device = stepped(phase, broadcast, batch, HashCoins(SEED, 1, NUMPY))
    in_turn = phase.finish(broadcast, release, device, HashCoins(SEED, 1, NUMPY))
    assert_same(at_once, in_turn)


@pytest.mark.parametrize("case", MODES)
def test_one_state_goes_through_all_phases(case: str) -> None:
    """The state keeps its shape from the first version to the last, and so does what is broadcast."""
    algorithm = small(case).build(NUMPY)
    server = begun = algorithm.last.server.init(ZeroCoins())
    device = algorithm.phases[0].begin()
    for version in range(len(algorithm.phases) + 1):
        phase, coins = algorithm.at(version), HashCoins(SEED, version + 1, NUMPY)
        broadcast = phase.server.check_out(server)
        check_in, device = phase.contribute(broadcast, device, batch_of(algorithm, version), coins)
        server, _ = phase.server.absorb(server, phase.server.row(), check_in, np.int32(0))
        server, _ = phase.server.commit(server)
        assert shapes(server) == shapes(begun) and shapes(broadcast) == shapes(phase.server.check_out(begun))
    assert all(np.isfinite(leaf).all() for leaf in trees.leaves(algorithm.last.server.report(server)))


def test_a_version_belongs_to_one_phase() -> None:
    phase = small("consensus-newton, none").build(NUMPY).last
    first, second = replace(phase, versions=2), replace(phase, versions=3)
    made = Algorithm(phases=(first, second, phase), schedule=OnArrival(batch=1, buffer=1))
    assert [made.phases.index(made.at(version)) for version in range(7)] == [0, 0, 1, 1, 1, 2, 2]
    assert made.last is phase


# Without hints.

SPARSE: list[str] = [
    "model={ kind = 'mlp', layers = [200] }",
    "data.transform=[{ kind = 'scale', by = 0.0625 }]",
    "algorithm.local-batch=100",
]


@pytest.fixture(autouse=True, scope="module")
def two_labels() -> Iterator[None]:
    with odd_digits():
        yield


def digits(kind: str, changes: list[str]) -> Task:
    return parse(TASK.replace("KIND", kind), changes=[*TWO_LABELS.get(kind, []), *changes])


@pytest.mark.parametrize("kind", RECIPES)
def test_step_by_step_no_hint_is_needed(kind: str) -> None:
    task = digits(kind, [])
    _, dataset = prepare(task)
    algorithm = task.build(NUMPY, numbers(task))
    timeline = make_timeline(task, dataset, algorithm, np.random.default_rng([3, 0]))
    plain = replace(algorithm, hints=SpeedHints())
    hinted, unhinted = (run_stepwise(chosen, timeline, dataset, SEED) for chosen in (algorithm, plain))
    assert_same((hinted.report, hinted.devices), (unhinted.report, unhinted.devices))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [*((kind, []) for kind in RECIPES), ("fedavg", SPARSE)],
    ids=[*RECIPES, "fedavg, sparse inputs"],
)
def test_compiled_without_hints_it_ends_alike(kind: str, changes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit where rows are read in parts; zeros left out are sums in another order."""
    task = digits(kind, changes)
    hinted = simulate(task, seed=3)
    recipe = RECIPES[kind]
    bare = replace(recipe, build=lambda parts: replace(recipe.build(parts), hints=SpeedHints()))
    monkeypatch.setitem(RECIPES._entries, kind, bare)
    unhinted = simulate(digits(kind, changes), seed=3)
    if not changes:
        assert same_bits(hinted, unhinted)
    for one, other in zip(trees.leaves(hinted.parameters), trees.leaves(unhinted.parameters), strict=True):
        assert np.abs(one - other).max() <= 1e-4 * np.abs(other).max()


LIVE = [case for case, (kind, _) in MODES.items() if RECIPES[kind].live and not RECIPES[kind].sums_only]
QUICK = [case for case in LIVE if small(case).build(NUMPY, flat=True).hints.apply_batch]


def test_recipes_that_make_a_version_of_each_check_in_have_a_quick_way() -> None:
    assert {MODES[case][0] for case in QUICK} >= {"crowd-sgd", "local-sgd"}


@pytest.mark.parametrize("case", QUICK)
def test_a_batch_is_applied_as_if_one_after_another(case: str) -> None:
    task = small(case)
    devices, flat = task.build(NUMPY), task.build(NUMPY, flat=True)
    part, phase, check_ins = flat.last.server, devices.last, []
    broadcast = phase.server.check_out(phase.server.init(ZeroCoins()))
    for number in range(7):
        coins = HashCoins(SEED, number + 1, NUMPY)
        check_in, _ = phase.contribute(broadcast, phase.begin(), batch_of(devices, number), coins)
        check_ins.append(replace(check_in, update=flat_vector(check_in.update)))
    slots, ages = [0, 1, 0, 2, 1, 0, 3], [0, 1, 0, 2, 3, 0, 1]
    server, rows = part.init(ZeroCoins()), dict[int, Any]()
    for slot, check_in, age in zip(slots, check_ins, ages, strict=True):
        server, rows[slot] = part.absorb(server, rows.get(slot, part.row()), check_in, np.int32(age))
        server, _ = part.commit(server)
    quick_rows = dict[int, Any]()
    assert flat.hints.apply_batch is not None
    quick = flat.hints.apply_batch(part.init(ZeroCoins()), quick_rows, slots, check_ins, ages)
    assert_same(quick, server)
    if trees.leaves(part.row()):
        assert_same(quick_rows, rows)


def flat_vector(update: Any) -> Any:
    return np.concatenate([leaf.reshape(-1) for leaf in trees.leaves(update)])


def shapes(tree: Any) -> list[Any]:
    return [(path, np.shape(leaf), np.asarray(leaf).dtype) for path, leaf in trees.paths(tree)]


def assert_same(one: Any, other: Any) -> None:
    for (path, left), (_, right) in zip(trees.paths(one), trees.paths(other), strict=True):
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes(), path
