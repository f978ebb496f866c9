"""Making a task: from its file to what is stored. Signed, opened once as devices will open it, and begun.

Labelled public rows, on which models are validated and the servers of some tasks learn weights, are checked here and
kept beside it.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from crowdml.core import Array, Coins, record
from crowdml.core.keys import SigningKey
from crowdml.server.refusals import Refusal
from crowdml.server.store import NewTask
from crowdml.server.tasks.browser_plan import browser_plan
from crowdml.task import Task, parse
from crowdml.task.averaging_terms import PublicSet, check_public, require_public
from crowdml.task.live_task import definition_of, open_task, require_live
from crowdml.wire import TaskDocument, sign_task
from crowdml.wire.signed_task import Arrays


@record
class TaskRequest:
    """What an operator hands over for a new task.

    Attributes:
        file: The task file.
        changes: Changes to it, as `--set` has them.
        arrays: What each of its transforms learnt from public rows; None: nothing.
        draft: Whether it is not opened yet.
        public: Labelled public rows that the server keeps.
    """

    file: str
    changes: Sequence[str] = ()
    arrays: tuple[Arrays, ...] | None = None
    draft: bool = False
    public: PublicSet | None = None


def make_task(request: TaskRequest, key: SigningKey, coins: Callable[[], Coins], taken: Container[str]) -> NewTask:
    """Make a task that can be stored, or say what is wrong with its file.

    Args:
        request: What the operator handed over.
        key: Signs the task.
        coins: Begin its model.
        taken: Names that it must not have.
    """
    task = parse(request.file, "task file", request.changes)
    require_live(task)
    kept = write_public_set(task, request.public)
    if task.name in taken:
        raise Refusal(409, "name-taken", f"a task named {task.name} exists", hint="choose another name")
    learnt = tuple({} for _ in task.data.transform) if request.arrays is None else request.arrays
    document = TaskDocument(
        task=task.name,
        incarnation=1,
        definition=definition_of(task),
        arrays=tuple(dict(arrays) for arrays in learnt),
    )
    # Opened as devices and every later start will open it: whatever is wrong comes to light before it is stored.
    live = open_task(sign_task(document, key).open())
    signed = sign_task(dataclasses.replace(document, browser=browser_plan(live)), key)
    return NewTask(
        name=task.name,
        state="draft" if request.draft else "open",
        file=request.file,
        signed_text=signed.text,
        signature=signed.signature,
        key=signed.key,
        incarnation=1,
        server_state=live.state.encode(live.server.last.server.init(coins())),
        public=kept,
    )


def write_public_set(task: Task, found: PublicSet | None) -> bytes | None:
    """Check a set and write it; None where there is none and the task needs none."""
    require_public(task, found)
    if found is None:
        return None
    check_public(task, found)
    return save({name: np.ascontiguousarray(found[name], np.float32) for name in ("rows", "labels")})


def read_public_set(document: TaskDocument, content: bytes | None) -> dict[str, Any]:
    """Read a set as hyper-parameters of the document's task; nothing where there is none."""
    if content is None:
        return {}
    task = Task.model_validate(document.definition, by_alias=True, by_name=False)
    return require_public(task, load(content))


def read_validation_set(content: bytes | None) -> PublicSet | None:
    """Read a set as it was kept, to validate models on; None where there is none."""
    return None if content is None else dict(load(content))


class EntropyCoins:
    """Uniform numbers from the operating system, to begin models with. Implements `Coins`; noise belongs to devices."""

    def uniform(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Uniform on (0, 1)."""
        words = np.frombuffer(os.urandom(4 * math.prod(shape)), np.uint32) >> np.uint32(8)
        return ((words.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-24)).reshape(shape)

    def laplace(self, stage: str, shape: tuple[int, ...]) -> Array:
        """Refuse: the server has nothing to hide by noise."""
        raise TypeError("the server draws no noise")

    gaussian = laplace

    def discrete_laplace(self, stage: str, scale: float, shape: tuple[int, ...]) -> Array:
        """Refuse: the server has nothing to hide by noise."""
        raise TypeError("the server draws no noise")
