"""Extensions in programs of their own: by entry points of an installed package, by CROWDML_PLUGINS, and live."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.server import RUN, Server

ROOT = Path(__file__).parents[2]
HEAVY_BALL = ROOT / "examples/plugins/heavy_ball.py"
ALGORITHM = 'kind = "crowd-sgd"\nbatch = 10\nrate = { kind = "inverse-sqrt", c = 10.0 }\n'
HEAVY = 'kind = "heavy-ball"\nbatch = 10\nrate = { kind = "constant", c = 1.0 }\n'
DIGITS = str(ROOT / "examples/digits.toml")
QUICK = ("--set", "crowd.passes=1", "--set", "crowd.curve=1")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def crowdml(tmp_path: Path) -> Run:
    """Run a command in a process of its own, in the test's folder."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*RUN, *arguments], cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=240
        )

    return run


def install(folder: Path, entry_points: str, name: str = "heavy-package") -> str:
    """Lay a package down as an installer would; return what PYTHONPATH must say."""
    made = folder / "site"
    made.mkdir(exist_ok=True)
    shutil.copy(HEAVY_BALL, made)
    described = made / f"{name.replace('-', '_')}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(entry_points)
    return str(made)


def test_a_recipe_of_an_installed_package(crowdml: Run, tmp_path: Path) -> None:
    path = install(tmp_path, "[crowdml.recipes]\nheavy-ball = heavy_ball:HEAVY_BALL\n")
    options = ("--set", "algorithm.kind=heavy-ball", "--set", "algorithm.rate.c=1.0", *QUICK)
    ran = crowdml("simulate", DIGITS, *options, PYTHONPATH=path)
    assert ran.returncode == 0, ran.stderr
    without = crowdml("simulate", DIGITS, *options)
    assert without.returncode == 2 and 'unknown kind "heavy-ball"' in without.stderr


@pytest.mark.parametrize(
    ("entry_points", "said"),
    [
        ("[crowdml.rates]\nwarm = nowhere:Warm\n", 'entry point "warm" of crowdml.rates in the package heavy-package'),
        (
            "[crowdml.rates]\nwarm = heavy_ball:HEAVY_BALL\n",
            "heavy_ball:HEAVY_BALL is a Recipe, not a class of RateSett",
        ),
        ("[crowdml.recipes]\nball = heavy_ball:HEAVY_BALL\n", 'the recipe "ball": its settings are not of this kind'),
    ],
)
def test_a_broken_entry_point(crowdml: Run, tmp_path: Path, entry_points: str, said: str) -> None:
    path = install(tmp_path, entry_points)
    ran = crowdml("privacy", "explain", DIGITS, PYTHONPATH=path)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr and len(ran.stderr.splitlines()) <= 3
    assert said in ran.stderr and "heavy-package" in ran.stderr
    assert crowdml("--help", PYTHONPATH=path).returncode == 0, "nothing is loaded before a task is read"


def test_a_file_by_its_name(crowdml: Run, tmp_path: Path) -> None:
    shutil.copy(HEAVY_BALL, tmp_path)
    options = ("privacy", "explain", DIGITS, "--set", "algorithm.kind=heavy-ball")
    ran = crowdml(*options, CROWDML_PLUGINS="heavy_ball.py")
    assert ran.returncode == 0, ran.stderr
    assert crowdml(*options, CROWDML_PLUGINS="heavy_ball", PYTHONPATH=str(tmp_path)).returncode == 0
    for wrong, said in (("light_ball.py", "there is no such file"), ("light_ball", "cannot be loaded: ModuleNotFound")):
        ran = crowdml(*options, CROWDML_PLUGINS=wrong)
        assert ran.returncode == 2 and f"CROWDML_PLUGINS: {wrong}" in ran.stderr and said in ran.stderr


def test_live_with_an_extension_on_both_sides(crowdml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound task with a server and two devices; one without the recipe is told what it needs."""
    monkeypatch.setenv("CROWDML_PLUGINS", str(HEAVY_BALL))
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    try:
        server.open((ALGORITHM, HEAVY))
        labels = np.arange(40) % 2
        values = np.random.default_rng(3).normal(size=(40, 3)) * 0.3 + np.where(labels, 0.8, -0.8)[:, None]
        np.savez(tmp_path / "rows.npz", rows=values, labels=labels)

        lacking = crowdml("device", "join", server.invite(), "--home", "poor", "--yes", CROWDML_PLUGINS="")
        assert lacking.returncode == 2 and "Traceback" not in lacking.stderr
        assert 'this task needs the recipe "heavy-ball"' in lacking.stderr
        assert "install the package that brings it" in lacking.stderr

        for name in ("one", "two"):
            joined = crowdml("device", "join", server.invite(), "--home", name, "--yes")
            assert joined.returncode == 0, joined.stderr
            ran = crowdml("device", "run", "--rows", "rows.npz", "--home", name, "--releases", "6", "--json")
            assert ran.returncode == 0, ran.stderr
            assert json.loads(ran.stdout.splitlines()[-1])["used"] == 6
        task: Any = server.ask(f"/v1/tasks/{server.task}")
        assert (task["version"], task["check_ins"]) == (12, 12)
    finally:
        server.kill()
