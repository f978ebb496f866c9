"""Variables of JAX: workers are given them, the user's process keeps its own, and what the user says counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crowdml.simulation.engine import jax_variables, on_accelerator
from crowdml.simulation.workers import pool

ROOT = Path(__file__).parents[3]
CODE = """
import os
before = dict(os.environ)
import crowdml
task = crowdml.Task.load("examples/digits.toml", ["crowd.passes=1", "crowd.curve=1"])
result = crowdml.simulate(task, engine="compiled")
assert result.processes == 1
import jax
assert dict(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "", "TPU_SKIP_MDS_QUERY": ""} == before | {
    "TF_CPP_MIN_LOG_LEVEL": "", "TPU_SKIP_MDS_QUERY": ""
}, set(os.environ.items()) ^ set(before.items())
assert jax.config.jax_platforms is None, jax.config.jax_platforms
"""


def test_the_users_process_keeps_its_variables(tmp_path: Path) -> None:
    unset = ("JAX_PLATFORMS", "NPROC", "XLA_FLAGS", "JAX_CPU_ENABLE_ASYNC_DISPATCH")
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    variables |= {"CROWDML_WORKERS": "1", "XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_what_the_user_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    monkeypatch.setenv("NPROC", "4")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    found = jax_variables()
    assert found["JAX_PLATFORMS"] == "cuda,cpu" and found["NPROC"] == "4"
    assert found["XLA_FLAGS"].startswith("--xla_dump_to=x --xla_backend_extra_options=")
    assert on_accelerator()
    monkeypatch.delenv("CROWDML_WORKERS", raising=False)
    assert pool.allowed() == 1  # one process has the accelerator
    monkeypatch.setenv("JAX_PLATFORMS", "")
    assert jax_variables()["JAX_PLATFORMS"] == "cpu" and not on_accelerator()


def test_a_platform_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crowdml", "simulate", "examples/digits.toml", "--trials", "1"]
    variables = os.environ | {"JAX_PLATFORMS": "cuda", "CROWDML_WORKERS": "1", "XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run(
        [*command, "--engine", "compiled"], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120
    )
    if ran.returncode == 0:
        pytest.skip("this machine has an accelerator")
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert "JAX_PLATFORMS=cuda: JAX finds nothing to compute on" in ran.stderr
