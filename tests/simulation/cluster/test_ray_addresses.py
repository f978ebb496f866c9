"""A Ray cluster by its address for guests, and one that is started and stopped: the same bits, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import crowdml
from crowdml.simulation import simulate
from crowdml.simulation.cluster.connection import connected
from crowdml.simulation.cluster.hiring import hire
from crowdml.simulation.cluster.ray_crew import RayCrew
from crowdml.task import load
from tests.simulation.cluster.conftest import Cluster
from tests.support.simulated import same_bits

pytestmark = [pytest.mark.live, pytest.mark.ray, pytest.mark.timeout(600)]

PROGRAM = """
import sys
from crowdml import simulate
from crowdml.task import load
simulate(load(sys.argv[1], ["crowd.passes=2"]), trials=2, engine="compiled", on=sys.argv[2]).save(sys.argv[3])
"""
EXAMPLE = Path(__file__).parents[3] / "examples" / "digits.toml"


@pytest.mark.parametrize("of", ["a client", "a cluster of ones own"])
def test_by_whatever_address_it_is_the_same(of: str, cluster: Cluster, tmp_path: Path) -> None:
    """By the address for clients, and by a cluster that is started and stopped and leaves nothing behind."""
    on = cluster.client if of == "a client" else "ray"
    command = [sys.executable, "-c", PROGRAM, str(EXAMPLE), on, str(tmp_path / "result")]
    variables = {**os.environ, "CROWDML_WORKERS": "2"}
    for _ in range(4):
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=variables)
        if (
            "Starting Ray client server failed" not in done.stderr
        ):  # Ray waits 30 s for it, too little on a busy machine
            break
    assert done.returncode == 0, done.stderr[-3000:]
    found = crowdml.Result.load(tmp_path / "result")
    assert found.processes and same_bits(
        found, simulate(load(EXAMPLE, ["crowd.passes=2"]), trials=2, engine="compiled")
    )
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert "/tmp/crowd-" not in left, "a cluster of ours goes on"  # noqa: S108


def test_processors_are_free_again_for_whoever_hires_next(cluster: Cluster) -> None:
    """Two runs after each other in a process that has joined a cluster: Ray gives back a moment after a worker ends."""
    with connected(cluster.head):
        for _ in range(2):
            with hire("ray") as crew:
                assert isinstance(crew, RayCrew) and len(crew.workers) == 2
