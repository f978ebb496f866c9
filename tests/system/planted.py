"""Bugs that break a promise only when something goes wrong at the wrong moment; courses from seeds must catch each.

Nothing here is imported by the product: patches are undone when the block ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from crowdml.device.ledger_store import Unsettled
from crowdml.device.sending import Sender
from crowdml.server.store import sqlite
from crowdml.server.tasks import task_writer
from crowdml.server.tasks.folding import fold as once
from crowdml.server.tasks.mutable_task import MutableTask
from crowdml.server.tasks.task_writer import Writer
from tests.system.world import run_seed

MOST_SEEDS = 40
"""A bug must be caught by then."""


@dataclass(frozen=True)
class Planted:
    """A bug, and how it shows.

    Attributes:
        name: What is wrong.
        plant: `plant(stack)`: enters the patches that plant it.
        shows: What the checker says of it; another complaint is no proof.
    """

    name: str
    plant: Callable[[ExitStack], None]
    shows: tuple[str, ...]


def patch(stack: ExitStack, where: Any, name: str, made: Any) -> None:
    """Put something in the place of an attribute until the stack is closed."""
    stack.enter_context(mock.patch.object(where, name, made))


def acknowledged_early(stack: ExitStack) -> None:
    """The writer does not wait for its transaction."""

    async def hasty(self: Writer, function: Any, *arguments: Any) -> Any:
        under_way = self._loop.run_in_executor(self._thread, function, *arguments)
        return None if function == self._store.apply else await under_way

    patch(stack, Writer, "_in_thread", hasty)


def applied_twice(stack: ExitStack) -> None:
    """What is sent again goes into the model again, and gets its first receipt."""

    def twice(live: Any, task_hash: str, state: Any, batch: Any, known: Any) -> Any:
        part = live.server.last.server
        for check_in in batch:
            if (check_in.device.slot, check_in.key) in known:
                state.server, _ = part.absorb(state.server, part.row(), check_in.content, np.int32(0))
                state.server, _ = part.commit(state.server)
        return once(live, task_hash, state, batch, known)

    patch(stack, task_writer, "fold", twice)


def unsettled_shown(stack: ExitStack) -> None:
    """Everybody sees a version before it is stored."""
    since = MutableTask.since

    def shown(self: MutableTask, *given: Any, **more: Any) -> Any:
        made = since(self, *given, **more)
        self.settle()
        return made

    patch(stack, MutableTask, "since", shown)


def charged_late(stack: ExitStack) -> None:
    """A device sends first and charges when it has an answer."""
    charge = Sender.charge
    owed: dict[str, Callable[[], Any]] = {}

    def later(self: Sender, version: int, body: bytes, *more: Any) -> Unsettled:
        key = self._make_key(version)
        owed[key] = lambda: charge(self, version, body, *more)
        return Unsettled(key=key, task=self.member.account, body=body)

    def sent(self: Sender, unsettled: Unsettled) -> Any:
        answer = self.calls.check_in(unsettled.key, unsettled.body)
        make, self._make_key = self._make_key, lambda version: unsettled.key
        try:
            owed.pop(unsettled.key, lambda: None)()
        finally:
            self._make_key = make
        return self.settle(unsettled, answer)

    patch(stack, Sender, "charge", later)
    patch(stack, Sender, "send", sent)


def not_forced(stack: ExitStack) -> None:
    """The server's database leaves it to the operating system when its log goes to disk."""
    patch(stack, sqlite, "SAFE", sqlite.SAFE | {"synchronous": ("NORMAL", 1)})


LOST = ("acknowledged, and lost", "was shown, and")
PLANTED = (
    Planted("acknowledge before commit", acknowledged_early, LOST),
    Planted("apply twice", applied_twice, ("the model is not what",)),
    Planted("read unsettled state", unsettled_shown, ("was shown, and", "was shown before")),
    Planted("charge after send", charged_late, ("sent before it was charged",)),
    Planted("synchronous=NORMAL", not_forced, LOST),
)
"""Every bug that must be caught."""


def seeds_until_caught(bug: Planted, most: int = MOST_SEEDS) -> int | None:
    """Plant a bug and go through courses until one shows it; return how many that took, None where none did."""
    with ExitStack() as stack:
        bug.plant(stack)
        for tried in range(1, most + 1):
            found = run_seed(3 * (tried - 1)).violations  # of tasks on arrival
            if any(sign in violation for sign in bug.shows for violation in found):
                return tried
    return None


def main() -> int:
    """Plant all; the exit code is the number of survivors."""
    survivors = 0
    for bug in PLANTED:
        tried = seeds_until_caught(bug)
        survivors += tried is None
        caught = f"caught by seed {3 * (tried - 1)}, after {tried}" if tried else f"SURVIVES {MOST_SEEDS}"
        print(f"{bug.name:26} {caught} seeds", flush=True)
    return survivors


if __name__ == "__main__":
    raise SystemExit(main())
