"""Models of the user's own in simulation: as good as the same layers of ours, private too; and what is refused."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crowdml
from crowdml import Task, simulate
from crowdml.core import NUMPY, BadInput, Registry
from crowdml.core.ops import ZeroCoins
from crowdml.models import kinds
from crowdml.simulation.engine.hash_coins import trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.run import make_timelines
from crowdml.simulation.stepwise import run_stepwise, simulate_stepwise
from crowdml.slicing.stages import stages
from crowdml.task.task_checks import with_model
from tests.support import user_models as same
from tests.support.extensions import forgotten
from tests.support.targets import some_labels

ROOT = Path(__file__).parents[2]
MLP = "model={ kind = 'mlp', layers = [30], activation = 'relu' }"
SOUND = "privacy={ mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 60.0, delta = 1e-5, max-uses = 6 }"
LEARNT: dict[str, list[str]] = {
    "crowd-sgd": ["algorithm={ kind = 'crowd-sgd', batch = 10, rate = { kind = 'constant', c = 0.5 } }"],
    "fedavg": [
        "algorithm={ kind = 'fedavg', local-batch = 10, epochs = 2, per-round = 5, rate = { c = 0.5 } }",
        "algorithm.rate.kind=constant",
        "crowd.passes=12",
    ],
    "private fedsgd": [
        "algorithm={ kind = 'fedsgd', per-round = 4, rate = { kind = 'constant', c = 4.0 } }",
        SOUND,
    ],
}


def task(*changes: str) -> Task:
    return Task.load(ROOT / "examples/digits.toml", ["crowd.passes=6", "crowd.curve=1", *changes])


def flax_mlp() -> Any:
    """Begins with weights of our law, which is Glorot's; flax's are LeCun's."""
    return crowdml.FlaxModel(module=same.linen_mlp(30, 10))


@pytest.mark.parametrize("learnt", list(LEARNT))
def test_a_flax_mlp_learns_as_well_as_ours(learnt: str) -> None:
    theirs = simulate(task(*LEARNT[learnt]), model=flax_mlp(), trials=3)
    ours = simulate(task(*LEARNT[learnt], MLP), trials=3)
    assert theirs.engine == "compiled"
    spread = max(np.std(ours.measured["test_error"][-1]), np.std(theirs.measured["test_error"][-1]), 0.01)
    assert ours.test_error < 0.25
    assert abs(theirs.test_error - ours.test_error) < 3 * spread
    assert theirs.privacy.get("sample") == ours.privacy.get("sample")


def test_from_the_same_weights_without_noise_the_parameters_are_the_same() -> None:
    start = same.first(same.ours(features=64, hidden=30, classes=10))
    model = crowdml.FlaxModel(module=same.linen_mlp(30, 10), start=same.linen_arrays(start))
    steps = "algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 5, rate = { kind = 'constant', c = 0.1 } }"
    few = [steps, "crowd.passes=1", "model={ kind = 'mlp', layers = [30], regularisation = 0.01 }"]
    theirs = simulate(task(*few), model=model)
    debugged = simulate_stepwise(with_model(task(*few), model))
    for name, array in theirs.parameters[0].items():
        np.testing.assert_allclose(array, debugged.parameters[0][name], rtol=1e-4, atol=1e-5)
    assert theirs.task.model.regularisation == 0.01
    ours = _walked(few, start)
    for name, array in same.linen_arrays(ours).items():
        np.testing.assert_allclose(theirs.parameters[0][name][0], array, rtol=1e-3, atol=1e-4)


def _walked(changes: list[str], start: Any) -> Any:
    """Learn with layers of ours from given weights, in the loop that takes any algorithm."""
    made = task(*changes)
    dataset, algorithm = prepare(made)[1], made.build(NUMPY)
    begun = algorithm.last.server.init(ZeroCoins())
    held = dataclasses.replace(begun, parameters=start)

    class Begun(type(algorithm.last.server)):  # type: ignore[misc]
        def init(self, coins: Any) -> Any:
            return held

    server = Begun(**vars(algorithm.last.server))
    phase = dataclasses.replace(algorithm.last, server=server)
    (timeline,) = make_timelines(made, dataset, 1, 0)
    ended = run_stepwise(dataclasses.replace(algorithm, phases=(phase,)), timeline, dataset, trial_seed(0, 0))
    return ended.report.parameters


STEPS = (
    "algorithm={ kind = 'fedavg', local-batch = 10, local-steps = 3, per-round = 5, rate = { c = 0.5 } }",
    "algorithm.rate.kind=constant",
    "privacy={ mode = 'paper', mechanism = 'gaussian', noise-at = 'steps', clip = 1.0, epsilon = 50.0, delta = 1e-5 }",
    "privacy.adjacency=add-remove",
    "privacy.sampling-rate=0.1",
    "stop.max-releases=4",
)


def test_noise_inside_steps_clips_each_row() -> None:
    result = simulate(task(*STEPS, "crowd.passes=2"), model=flax_mlp())
    ours = simulate(task(*STEPS, "crowd.passes=2", MLP))
    assert result.privacy["sample"]["epsilon"] == ours.privacy["sample"]["epsilon"]
    assert np.isfinite(result.test_error)


REFUSED: dict[str, tuple[list[str], str]] = {
    "admm": (["algorithm={ kind = 'admm' }"], "for convex models only"),
    "admm-sums": (["algorithm={ kind = 'admm-sums' }"], "for convex models only"),
    "local-fit": (["algorithm={ kind = 'local-fit' }"], "only convex models can be fitted at once"),
    "consensus-newton": (["algorithm={ kind = 'consensus-newton' }"], "needs a model of one dense layer"),
    "ridge": (["algorithm={ kind = 'ridge' }"], "ridge fits one score"),
    "no clip": (
        ["privacy={ mode = 'sound', mechanism = 'gaussian', epsilon = 8.0, delta = 1e-5, max-uses = 6 }"],
        "clip",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_needs_more_than_gradients_is_refused(case: str, convex_looking: str) -> None:
    changes, words = REFUSED[case]
    rows = "data={ features = 6, labels = ['no', 'maybe', 'yes'] }"
    with pytest.raises(BadInput, match=words):
        made = task(rows, f"model={{ kind = 'own', name = '{convex_looking}' }}", *changes)
        simulate(made)


@pytest.fixture(scope="module")
def convex_looking() -> Iterator[str]:
    """A model of one output and one layer: nothing but its kind tells that it is not convex."""
    with forgotten():
        crowdml.register("functions", crowdml.JaxModel(**same.jax_functions()))
        yield "functions"


def test_what_cannot_be_looked_into_cannot_be_cut_into_slices() -> None:
    model = crowdml.JaxModel(**same.jax_functions()).build(same.FEATURES, some_labels(same.CLASSES), NUMPY)
    with pytest.raises(BadInput, match="no hidden layer to slice"):
        stages(model)


def test_two_models_in_one_program_are_not_taken_for_each_other() -> None:
    few = ["crowd.passes=1", "algorithm.batch=50"]
    one, two = (
        simulate(task(*few), model=crowdml.FlaxModel(module=same.linen_mlp(size, 10))).parameters[0] for size in (3, 4)
    )
    assert (one["Dense_0.bias"].shape, two["Dense_0.bias"].shape) == ((1, 3), (1, 4))


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(BadInput, match="list is no model that crowdml knows"):
        simulate(task(), model=[1, 2])
    from flax import linen

    with pytest.raises(BadInput, match=r"Dense is a class, and no model yet\n  Dense\(…\)"):
        simulate(task(), model=linen.Dense)
    with pytest.raises(BadInput, match="should be a Task"):
        simulate("digits.toml", model=flax_mlp())  # type: ignore[arg-type]


def test_a_model_by_name_from_a_file_that_registers_it(tmp_path: Path) -> None:
    """By the command, in worker processes as well; and mistakes end with exit code 2 and no traceback."""
    (tmp_path / "net.py").write_text(
        "import crowdml\nfrom flax import linen\n\n\n"
        "class Net(linen.Module):\n    @linen.compact\n    def __call__(self, x):\n"
        "        return linen.Dense(10)(linen.relu(linen.Dense(8)(x)))\n\n\n"
        'crowdml.register("net", crowdml.FlaxModel(module=Net()))\n'
        'crowdml.register("narrow", crowdml.FlaxModel(module=linen.Dense(3)))\n'
    )
    command = [sys.executable, "-m", "crowdml", "simulate", str(ROOT / "examples/digits.toml")]
    environment = os.environ | {"CROWDML_PLUGINS": str(tmp_path / "net.py"), "CROWDML_WORKERS": "1"}

    def run(*more: str) -> Any:
        return subprocess.run([*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True)

    right = run("--set", "model={ kind = 'own', name = 'net' }", "--set", "crowd.passes=1", "--json", "out.json")
    assert right.returncode == 0, right.stderr
    wrong = run("--set", "model={ kind = 'own', name = 'narrow' }")
    assert wrong.returncode == 2 and "Traceback" not in wrong.stderr
    assert "gives outputs of shape (2, 3) for 2 rows" in " ".join(wrong.stderr.split()), wrong.stderr


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("{ kind = 'own', name = 'function' }", 'did you mean "functions"?'),
        ("{ kind = 'own' }", "which model?"),
        ("{ kind = 'own', name = 'functions', layout = { a = [2] } }", 'the array "0.b": the task has no such array'),
        ("{ kind = 'own', layout = { a = [2] }, start = 'AAAA' }", "3 bytes, and the layout has 2 numbers of 4 bytes"),
        ("{ kind = 'own', layout = { a = [2] }, start = '?' }", "not written in base64"),
        ("{ kind = 'own', layout = { a = [1] }, start = 'AADAfw==' }", 'not every number of the array "a" is finite'),
    ],
)
def test_mistakes_in_the_section_are_sentences(model: str, words: str, convex_looking: str) -> None:
    with pytest.raises(BadInput) as error:
        task("data={ features = 6, labels = ['no', 'maybe', 'yes'] }", f"model={model}")
    assert words in str(error.value)


def test_a_name_that_nobody_registered_leads_to_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "USER_MODELS", Registry("model of your own", {}))
    with pytest.raises(BadInput, match='unknown model of your own "net"\n  a file that registers it: CROWDML_PLUGINS='):
        simulate(task("model={ kind = 'own', name = 'net' }"), engine="numpy")


def test_a_task_whose_model_is_not_here_can_be_explained_and_not_simulated() -> None:
    made = task("model={ kind = 'own', name = 'elsewhere', layout = { w = [10, 64] } }")
    with pytest.raises(BadInput, match='no model "elsewhere"'):
        simulate(made, engine="numpy")
