"""The how-to pages are carried out: their blocks are applied to a copy of the source, and the result is used.

A block after `<!-- file: PATH -->` is a new file. A block after `<!-- add to: PATH after: "TEXT" -->` goes below the
one line that holds TEXT.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ADD = re.compile(r'add to: (?P<path>\S+) after: "(?P<anchor>.+)"')

PRELUDE = """
import sys
from pathlib import Path
import crowdml
assert Path(crowdml.__file__).is_relative_to(Path.cwd()), "the copy is not the one imported"
from crowdml import Task, simulate
def task(*changes):
    return Task.load("examples/digits.toml", ["crowd.passes=2", "crowd.curve=2", *changes])
"""

RATE = """
result = simulate(task("algorithm.rate={ kind = 'halving', c = 10.0, half = 300.0 }"), trials=2)
assert result.test_error < 0.3, result.test_error
"""

MECHANISM = """
from crowdml.core import BadInput
noise = ["privacy.mode=paper", "privacy.mechanism=gaussian-classic", "privacy.clip=0.5", "privacy.delta=1e-6"]
own = task(*noise, "privacy.epsilon=1.0", "algorithm.batch=70", "algorithm.rate.c=10.0")
result = simulate(own, trials=2)
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
import runpy
import numpy as np
from crowdml.core import NUMPY, trees
from crowdml.simulation.coins import trial_seed
from crowdml.simulation.debug import simulate_stepwise
from crowdml.simulation.prepare import prepare
from crowdml.simulation.timeline import make_timeline
own = task(
    "algorithm={ kind = 'heavy-ball', stale = 'weight' }", "model.regularisation=0.001",
    "data.transform=[{ kind = 'norm', order = 1, at-most = 1.0 }]",
    "privacy.mode=paper", "privacy.epsilon=20.0", "crowd.delays={ request = 200, check-in = 300 }",
)
compiled, stepwise = simulate(own, trials=2, seed=3), simulate_stepwise(own, trials=2, seed=3)
plain = runpy.run_path("tests/parity/references/heavy_ball.py")["run"]
dataset = prepare(own)[1]
for trial in range(2):
    timeline = make_timeline(own, dataset, own.build(NUMPY), np.random.default_rng([3, trial]))
    w = plain(own, dataset, timeline, trial_seed(3, trial))[0]["w"]
    assert timeline.staleness.max() > 0 and np.abs(w).max() > 0.1
    for other in (compiled, stepwise):
        assert np.abs(other.parameters[0]["w"][trial] - w).max() <= 1e-5 * np.abs(w).max()
"""

USES = {"add-a-rate": RATE, "add-a-mechanism": MECHANISM, "add-an-algorithm": ALGORITHM}


def apply(page: Any, copy: Path) -> list[str]:
    """Do what a page says to a copy of the source, and return the files it made or changed."""
    touched = []
    for block in page.blocks("python"):
        if block.marker.startswith("file: "):
            path = block.marker.removeprefix("file: ")
            assert not (copy / path).exists(), f"{path} exists already"
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_text(block.text, encoding="utf-8")
        else:
            found = ADD.fullmatch(block.marker)
            assert found, f"{page.name}: a python block without a marker"
            path, anchor = found["path"], found["anchor"]
            lines = (copy / path).read_text(encoding="utf-8").splitlines(keepends=True)
            places = [number for number, line in enumerate(lines) if anchor in line]
            assert len(places) == 1, f"{page.name}: {anchor} stands in {len(places)} lines of {path}"
            lines.insert(places[0] + 1, block.text)
            (copy / path).write_text("".join(lines), encoding="utf-8")
        touched.append(path)
    return touched


@pytest.mark.parametrize("name", USES)
def test_how_to_works(name: str, pages: list[Any], root: Path, tmp_path: Path) -> None:
    page = next(page for page in pages if page.name == f"docs/how-to/{name}.md")
    for folder in ("src", "examples"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    touched = apply(page, tmp_path)
    in_source = [path for path in touched if path.startswith("src/")]
    assert len(set(in_source)) == 2 and len(in_source) == 3, "one file, and one registry entry: import and line"

    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    for arguments in (["ruff", "check", "--ignore", "I001"], ["ruff", "format", "--check"]):
        # The order of imports is left out: `make check` settles it among whatever else is registered.
        command = [sys.executable, "-m", *arguments, "--no-cache", *sorted(set(touched))]
        tidy = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert tidy.returncode == 0, tidy.stdout
    ran = subprocess.run(
        [sys.executable, "-c", PRELUDE + USES[name]], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_all_ways_to_add_something_are_carried_out(pages: list[Any]) -> None:
    assert {page.path.stem for page in pages if "/how-to/add-" in page.name} == set(USES)
