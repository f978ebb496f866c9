"""The model of a course, worked out again: the recorded bytes of all receipts, in the order of the log, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crowdml.algorithms import Counts
from crowdml.core import trees
from crowdml.core.ops import ZeroCoins
from crowdml.task.live_task import LiveTask, open_task
from crowdml.wire import SignedTask
from tests.system.history import History, open_file


def stored_task(path: Path) -> tuple[LiveTask, bytes]:
    """Read a server's task, and its state."""
    with open_file(path) as database:
        query = 'SELECT signed_text, signature, "key", server_state FROM signed_tasks JOIN states USING (task)'
        text, signature, key, state = database.execute(query).fetchone()
    return open_task(SignedTask(text=text, signature=signature, key=key).open()), state


def replay(path: Path, history: History) -> None:
    """Compare the stored state with the one that the bytes of all receipts lead to, bit by bit."""
    live, stored = stored_task(path)
    if live.masked is not None:
        return
    state, version, received, rows = live.server.last.server.init(ZeroCoins()), 0, 0, dict[int, Any]()
    with open_file(path) as database:
        log = database.execute('SELECT slot, "key", started, version FROM receipts ORDER BY id').fetchall()
    for slot, key, started, reached in log:
        part = live.server.at(version).server
        content = live.server_messages.check_in.decode(history.bodies[key])["content"]
        state, rows[slot] = part.absorb(state, rows.get(slot, part.row()), content, np.int32(version - started))
        received += 1
        if live.server.schedule.ready(Counts(received=received, version=version)):
            state, _ = part.commit(state)
            version, received = version + 1, 0
        if reached != version:
            history.violate(f"{key}: its receipt says version {reached}, the replay is at {version}")
            return
    made = trees.leaves(state)
    kept = trees.leaves(live.state.decode(stored))
    if not all(np.array_equal(one, other, equal_nan=True) for one, other in zip(made, kept, strict=True)):
        history.violate("the model is not what the bytes of all receipts lead to")
