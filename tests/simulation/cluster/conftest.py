"""A real cluster of two processors, for as long as tests need it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.ports import free_port

READY_WITHIN_S = 150


class Cluster(NamedTuple):
    """Where it is: of its head, and for clients."""

    head: str
    client: str


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two processors, an object store of 200 MB, a token; no dashboard, and nothing is told to anybody."""
    folder = Path(tempfile.mkdtemp(prefix="cr-", dir="/tmp"))  # names of sockets may have 107 characters
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ |= quiet  # Ray sends a token that is there
    port = free_port()
    options = "--head --block --port=0 --num-cpus=2 --include-dashboard=false --disable-usage-stats".split()
    options += [f"--temp-dir={folder}", f"--ray-client-server-port={port}", "--object-store-memory=200000000"]
    with open(folder / "said", "wb") as said:
        head = subprocess.Popen(
            [str(Path(sys.executable).with_name("ray")), "start", *options, "--node-ip-address=127.0.0.1"],
            stdout=said,
            stderr=said,
            start_new_session=True,
            env=os.environ | {"RAY_AUTH_MODE": "token"},
        )
    try:
        yield Cluster(_address(head, folder), f"ray://127.0.0.1:{port}")
    finally:
        head.send_signal(signal.SIGTERM)
        try:
            head.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait()
        shutil.rmtree(folder, ignore_errors=True)
        for name in (*quiet, "RAY_AUTH_MODE"):
            os.environ.pop(name, None)


def _address(head: subprocess.Popen[bytes], folder: Path) -> str:
    """Wait until the head says where it is."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and head.poll() is None:
        known = folder / "ray_current_cluster"
        if known.exists() and "Ray runtime started" in (folder / "said").read_text():
            return known.read_text().strip()
        time.sleep(0.2)
    raise AssertionError((folder / "said").read_text()[-2000:])
