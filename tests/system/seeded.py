"""Everything that would differ from run to run, taken from one seed: entropy, clocks, threads."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import fastapi.dependencies.utils
import fastapi.routing
from fastapi import FastAPI

import crowdml
from crowdml.core.keys import SigningKey
from crowdml.secure_aggregation import SumDevice
from crowdml.server.http import openapi
from crowdml.server.setup import framework
from crowdml.server.setup.serving import require_identity
from crowdml.server.store import open_store
from crowdml.task import plugins
from tests.system.disk import Disk
from tests.system.timeline import Timeline


@contextlib.contextmanager
def seeded(seed: int, timeline: Timeline, disk: Disk) -> Iterator[None]:
    """Let the whole process draw from a seed, and read virtual clocks."""
    chance = random.Random(f"entropy of {seed}")

    def entropy(count: int) -> bytes:
        return chance.randbytes(count)

    async def at_once(function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return function(*args, **more)

    with contextlib.ExitStack() as stack:
        for where, name, made in (
            (os, "urandom", entropy),
            (random, "_urandom", entropy),
            (SigningKey, "make", staticmethod(lambda: SigningKey(entropy(32)))),
            (time, "time", timeline.wall_clock),
            (time, "perf_counter", lambda: timeline.now),
            (sqlite3, "connect", disk.connect),
            (fastapi.dependencies.utils, "run_in_threadpool", at_once),
            (fastapi.routing, "run_in_threadpool", at_once),
            (framework, "_routes", _shared_routes),
            (openapi, "describe", lambda _: {}),
            (plugins, "_found", _found),
        ):
            stack.enter_context(mock.patch.object(where, name, made))
        # Its entropy is the value of an argument, which was read when the module was.
        stack.enter_context(mock.patch.object(SumDevice.__init__, "__defaults__", (entropy,)))
        yield


@functools.cache
def _found() -> tuple[Any, ...]:
    """Return what there is to load: to look for it in every installed package takes longer than a whole check-in."""
    return tuple(_plugins())


@functools.cache
def _routes() -> FastAPI:
    return _make_routes()


_make_routes, _plugins = framework._routes, plugins._found


def _shared_routes() -> FastAPI:
    """Make the framework of a server that starts: the routes are the same for all, and to make them takes a while."""
    fast = FastAPI(title="crowdml", version=crowdml.__version__, docs_url=None, redoc_url=None, openapi_url=None)
    fast.router.routes.extend(_routes().router.routes)
    return fast


def make_template(folder: Path) -> Path:
    """Make the files of a server that has not done anything yet; to make its tables takes a while."""
    place = folder / "template"
    place.mkdir()
    chance = random.Random(0)
    with (
        mock.patch.object(SigningKey, "make", staticmethod(lambda: SigningKey(chance.randbytes(32)))),
        mock.patch.object(random, "_urandom", chance.randbytes),
        open_store(f"sqlite:///{place}/crowdml.sqlite") as store,
    ):
        require_identity(store, place)
    return place
