"""Joining a Ray cluster, or starting one on this machine and stopping it."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdml.core import BadInput
from crowdml.core.errors import install
from crowdml.simulation.cluster.address import WHERE, Place, has_token, read_place, require_guarded
from crowdml.simulation.engine import CORES
from crowdml.simulation.workers import pool

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}
"""Ray sends nothing to its makers, leaves variables of accelerators alone, and lets workers have as much as others."""


@contextmanager
def connected(on: str) -> Iterator[Any]:
    """Give Ray's module, joined to the cluster that `--on` names.

    A process that has joined a cluster by itself keeps it, and `ray` means that one.
    """
    place = read_place(on)
    require_guarded(place)
    ray = import_ray()
    if ray.is_initialized():
        if place.address:
            what = "this process has joined a cluster already"
            raise BadInput(what, where=WHERE, hint='on="ray" means that one; ray.shutdown() leaves it')
        yield ray
        return
    with _own_cluster(ray) if not place.address else _joined(ray, place):
        yield ray


def import_ray() -> Any:
    """Import Ray, told to be quiet before it reads its variables.

    Raises:
        BadInput: It is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise BadInput("Ray is not installed here", where=WHERE, hint=install("ray"))
    told = QUIET | ({"RAY_AUTH_MODE": "token"} if has_token() else {})
    os.environ |= {name: value for name, value in told.items() if name not in os.environ}
    import ray

    return ray


@contextmanager
def _own_cluster(ray: Any) -> Iterator[None]:
    """Start a cluster with a processor per core; nobody without its token can use it, and nothing of it stays."""
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        what = "a cluster without a token would be open to everybody on the network"
        raise BadInput(what, where="RAY_AUTH_MODE", hint="leave it out: a token is made for the run")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray asks for one where it starts a cluster
    # Names of sockets below it may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="crowd-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))  # noqa: S108
    try:
        _start(ray, address="local", num_cpus=pool.allowed() or CORES, include_dashboard=False, _temp_dir=str(folder))
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _joined(ray: Any, place: Place) -> Iterator[None]:
    """Join a cluster; it goes on without us."""
    _start(ray, address=place.address)
    try:
        yield
    finally:
        ray.shutdown()


def _start(ray: Any, address: str, **options: Any) -> None:
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, namespace="crowdml", **options)
    except Exception as error:  # whatever Ray raises here, there is no cluster
        why = " ".join(str(error).split()).partition(". ")[0] or type(error).__name__
        raise BadInput(
            f"no Ray cluster answers at {address}: {why}" if address != "local" else f"Ray does not start: {why}",
            where=WHERE,
            hint="the same versions of Ray and Python are needed there and here; a token must be the cluster's own",
        ) from None
