"""Vectors that devices have sent to secure sums, as far as a server that is started anew has to know them.

A device sends a vector to so many attempts at a version as the terms say, and to no more. A server that forgot those
would wait for devices that never come again. Kept is one line for each task: it is written before members are asked for
their vectors, as if all of them had sent one, and again when the attempt is over, as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from crowdml.server.store.database import Statements

_NAME = "vectors of task {}"

Sent = Mapping[tuple[int, int], int]
"""How many vectors were sent, by slot and the version that the device began with."""


def keep(statements: Statements, task: int, sent: Sent) -> None:
    """Keep them in place of what was kept before."""
    name = _NAME.format(task)
    statements.run("DELETE FROM meta WHERE name = ?", name)
    if sent:
        lines = [[slot, started, count] for (slot, started), count in sent.items()]
        statements.insert("meta", name=name, value=json.dumps(lines))


def kept(statements: Statements, task: int) -> Sent:
    """Return what is kept."""
    found = statements.first("SELECT value FROM meta WHERE name = ?", _NAME.format(task))
    lines = json.loads(found[0]) if found else []
    return {(slot, started): count for slot, started, count in lines}
