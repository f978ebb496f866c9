"""The web project in tests: its packages, and scripts of it as processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

WEB = Path(__file__).parents[2] / "web"


def missing(why: str) -> None:
    """Skip with a reason; where everything must be there, fail."""
    if os.environ.get("CROWDML_CI") == "1":
        pytest.fail(why)
    pytest.skip(why)


def _builder() -> ModuleType:
    found = importlib.util.spec_from_file_location("web_build", WEB / "build.py")
    assert found is not None and found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


BUILD: Any = _builder()


def run_web(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the web project's packages, such as `vitest/vitest.mjs`."""
    problem = BUILD.problem()
    if problem is not None:
        missing(problem)
    made: subprocess.CompletedProcess[str] = BUILD.run(script, *arguments, **environment)
    return made


def node() -> str:
    """Return the program that runs scripts."""
    return str(BUILD.find("node")[0])


def built(source: str, folder: Path) -> Path:
    """Build a script of the web project for node; return the file."""
    made = run_web("vite/bin/vite.js", "build", "--ssr", source, "--outDir", str(folder), "--emptyOutDir")
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / f"{Path(source).stem}.js"
