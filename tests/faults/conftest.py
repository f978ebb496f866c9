"""Faults are injected by strace, which must be there and be allowed to trace; few open files come from prlimit."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from crowdml.device import Ledger
from tests.support.server import Server

CHARGES = Path(__file__).parent / "charges.py"

Traced = Callable[..., "subprocess.CompletedProcess[str]"]
Check = Callable[[Path, Path], int]


@functools.cache
def _why_not() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed: make system-packages"
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()}"


@pytest.fixture
def traced() -> Traced:
    """Run charges.py under strace with the given options."""
    if _why_not():
        pytest.skip(_why_not())

    def run(options: Sequence[object], *arguments: object) -> subprocess.CompletedProcess[str]:
        # The filter makes tracing quick, but swallows injected signals.
        quick = [] if any("signal=" in str(option) for option in options) else ["--seccomp-bpf"]
        command = ["strace", "-f", *quick, *map(str, options), sys.executable, str(CHARGES), *map(str, arguments)]
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | threads, timeout=120)

    return run


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that may have as many files open as the test's module says: `FILES`."""
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit is not installed")
    home, files = tmp_path / "server", request.module.FILES
    home.mkdir()
    started = Server(home, before=("prlimit", f"--nofile={files}:{files}"))
    yield started
    started.kill()


@pytest.fixture
def check() -> Check:
    """Compare a ledger with what was sent; return the number of charges."""

    def compare(path: Path, sent: Path) -> int:
        with Ledger(path) as ledger:  # verifies the chain, and its end
            charged = {entry["key"]: entry["body"] for entry in map(json.loads, ledger.entries()) if "key" in entry}
            waiting = {entry.key: hashlib.sha256(entry.body).hexdigest() for entry in ledger.unsettled()}
            spent = ledger.spent("task").epsilon if "task" in ledger.chain.tasks else 0.0
        lines = [line.split() for line in sent.read_text().splitlines()] if sent.exists() else []
        for key, digest in lines:
            assert charged.get(key) == digest, "a release that the ledger does not know, or other bytes under its key"
        assert spent == 0.5 * len(charged)
        unsent = set(charged) - {key for key, _ in lines}
        assert unsent <= set(waiting) and len(unsent) <= 1, "a charge that can no longer be sent"
        assert all(charged[key] == digest for key, digest in waiting.items())
        return len(charged)

    return compare
