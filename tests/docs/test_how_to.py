"""The how-to pages that add something are carried out as a user would: in a folder of one's own, by their commands.

A block after `<!-- file: NAME -->` is a file in that folder; `bash` blocks are typed there, beside a copy of
`examples/digits.toml`. Nothing in the package is touched. What was added is then used from a script.
"""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
from crowdml import Task, simulate
def task(*changes):
    return Task.load("digits.toml", ["crowd.passes=2", "crowd.curve=2", *changes])
"""

RATE = """
result = simulate(task("algorithm.rate={ kind = 'halving', c = 10.0, half = 300.0 }"), trials=2)
assert result.test_error < 0.3, result.test_error
"""

MECHANISM = """
from crowdml.core import BadInput
noise = ["privacy.mode=paper", "privacy.mechanism=gaussian-classic", "privacy.clip=0.5", "privacy.delta=1e-6"]
noisy = task(*noise, "privacy.epsilon=1.0", "algorithm.batch=70", "algorithm.rate.c=10.0")
result = simulate(noisy, trials=2)
assert result.test_error < 0.89, result.test_error
assert result.privacy["paper_claim"]["epsilon"] == 1.0
assert 0 < result.privacy["sample"]["epsilon"] < 2.0, result.privacy
try:
    task(*noise, "privacy.epsilon=2.0")
except BadInput as error:
    assert "changes: privacy.epsilon" in str(error), error
else:
    raise AssertionError("epsilon = 2 was accepted")
"""

ALGORITHM = """
import numpy as np
from crowdml.core import NUMPY
from crowdml.simulation.engine.hash_coins import HashCoins, trial_seed
from crowdml.simulation.prepare import prepare
from crowdml.simulation.stepwise import simulate_stepwise
from crowdml.simulation.timeline import make_timeline

def plain(task, dataset, timeline, seed):
    "The formula as a plain loop, from the paper and not from the code."
    settings, classes = task.algorithm, len(task.data.labels)
    noise = 4.0 / task.privacy.epsilon  # for rows with L1 norm <= 1
    w = velocity = np.zeros((classes, dataset.features))
    past = [w]
    for t in range(1, len(timeline) + 1):
        stale = timeline.staleness[t - 1]
        old, chosen = past[t - 1 - stale], timeline.rows[t - 1]
        x, y = dataset.train_rows[chosen], dataset.train_targets[chosen]
        scores = np.exp(x @ old.T)
        p = scores / scores.sum(axis=1, keepdims=True)
        g = (p - np.eye(classes)[y]).T @ x / len(x) + task.model.regularisation * old
        g = g + noise / len(x) * HashCoins(seed, t, NUMPY).laplace("gradient/0/w", g.shape)
        velocity = settings.momentum * velocity + g / np.sqrt(1.0 + stale)
        w = w - settings.rate.c / np.sqrt(t) * velocity
        past.append(w)
    return w

momentum = task(
    "algorithm={ kind = 'heavy-ball', stale = 'weight', momentum = 0.5, rate = { kind = 'inverse-sqrt', c = 10.0 } }",
    "model.regularisation=0.001", "data.transform=[{ kind = 'norm', order = 1, at-most = 1.0 }]",
    "privacy.mode=paper", "privacy.epsilon=20.0", "crowd.delays={ request = 200, check-in = 300 }",
)
compiled, stepwise = simulate(momentum, trials=2, seed=3), simulate_stepwise(momentum, trials=2, seed=3)
dataset = prepare(momentum)[1]
for trial in range(2):
    timeline = make_timeline(momentum, dataset, momentum.build(NUMPY), np.random.default_rng([3, trial]))
    w = plain(momentum, dataset, timeline, trial_seed(3, trial))
    assert timeline.staleness.max() > 0 and np.abs(w).max() > 0.1
    for other in (compiled, stepwise):
        assert np.abs(other.parameters[0]["w"][trial] - w).max() <= 1e-5 * np.abs(w).max()

SOUND = "mode = 'sound', mechanism = 'gaussian', clip = 1.0, epsilon = 8.0, delta = 1e-5, max-uses = 2"
for terms in ("mode = 'none'", SOUND):
    rates = ("kind = 'momentum', c = 1.0, momentum = 0.9", "kind = 'constant', c = 1.0")
    one, other = (
        simulate(task(f"algorithm={{ kind = '{kind}', rate = {{ {rate} }} }}", f"privacy={{ {terms} }}"))
        for kind, rate in zip(("crowd-sgd", "heavy-ball"), rates)
    )
    assert np.array_equal(one.parameters[0]["w"], other.parameters[0]["w"]), "not the rate momentum, bit for bit"
"""

DATASET = """
clouds = "data={ dataset = 'clouds', features = 2, labels = ['left', 'right'] }"
assert simulate(task(clouds, "crowd.devices=10")).test_error < 0.1
"""

LAYER = """
layers = "[{ kind = 'dense', size = 30 }, { kind = 'softplus' }, { kind = 'dense', size = 10 }]"
model = f"model={{ kind = 'layers', layers = {layers}, loss = 'warm' }}"
result = simulate(task(model, "algorithm.rate={ kind = 'constant', c = 1.0 }", "crowd.passes=10", "algorithm.batch=5"))
assert result.test_error < 0.5, result.test_error
"""

USES = {
    "add-a-rate": RATE,
    "add-a-mechanism": MECHANISM,
    "add-an-algorithm": ALGORITHM,
    "add-a-dataset": DATASET,
    "add-a-layer-or-loss": LAYER,
}


def page_of(name: str, pages: list[Any]) -> Any:
    return next(page for page in pages if page.name == f"docs/how-to/{name}.md")


@pytest.mark.parametrize("name", USES)
def test_how_to_works(name: str, pages: list[Any], root: Path, tmp_path: Path) -> None:
    page = page_of(name, pages)
    shutil.copy(root / "examples/digits.toml", tmp_path)
    (written,) = page.blocks("python")
    file = written.marker.removeprefix("file: ")
    (tmp_path / file).write_text(written.text, encoding="utf-8")
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CROWDML_PLUGINS": file,
    }
    format_ = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--check",
        "--no-cache",
        "--config",
        str(root / "pyproject.toml"),
        file,
    ]
    tidy = subprocess.run(format_, cwd=tmp_path, capture_output=True, text=True)
    assert tidy.returncode == 0, tidy.stdout
    for block in page.blocks("bash"):
        command = ["bash", "-c", f"unset CROWDML_PLUGINS; {block.text}"]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, block.text + ran.stderr
    script = [sys.executable, "-c", PRELUDE + USES[name]]
    ran = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_model_of_ones_own_works_as_the_page_says(pages: list[Any], root: Path, tmp_path: Path) -> None:
    page = page_of("use-your-own-model", pages)
    shutil.copy(root / "examples/digits.toml", tmp_path)
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "CROWDML_ENGINE": "auto",
        "PYTHONPATH": str(tmp_path),
    }
    ran = 0
    for block in page.blocks():
        if block.marker == "fragment":
            continue
        if name := block.marker.removeprefix("file: "):
            (tmp_path / name).write_text(block.text, encoding="utf-8")
            if name != "torch_net.py" or importlib.util.find_spec("torch") is None:
                continue
        command = ["bash", "-c", block.text] if block.language == "bash" else [sys.executable, "-c", block.text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, block.text + done.stderr
        if "test_error" in block.text:
            assert float(done.stdout.split()[-1]) < 0.3, done.stdout
        ran += 1
    assert ran >= 3 and (tmp_path / "net.safetensors").exists()


def test_heavy_ball_is_the_example_and_short(pages: list[Any], root: Path) -> None:
    (block,) = page_of("add-an-algorithm", pages).blocks("python")
    assert block.text == (root / "examples/plugins/heavy_ball.py").read_text(encoding="utf-8")
    tree = ast.parse(block.text)
    lines = {line for line, text in enumerate(block.text.splitlines(), 1) if text.strip()}
    for holder in ast.walk(tree):
        if isinstance(holder, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(holder):
            lines -= set(range(holder.body[0].lineno, (holder.body[0].end_lineno or 0) + 1))
    assert len(lines) <= 25


def test_all_ways_to_add_something_are_carried_out(pages: list[Any]) -> None:
    assert {page.path.stem for page in pages if "/how-to/add-" in page.name} == set(USES)
