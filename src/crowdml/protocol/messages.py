"""The messages between devices and server.

check-out   server → device   version, broadcast
check-in    device → server   version the device started from, sanitised contribution
"""

from __future__ import annotations

import numpy as np

from crowdml.core import record
from crowdml.core.ops import Tree
from crowdml.protocol.layout import Layout

PROTOCOL_VERSION = 1


@record
class Messages:
    """Both layouts of a task."""

    check_out: Layout
    check_in: Layout


def layouts(broadcast: Tree, check_in: Tree) -> Messages:
    """Fix the layouts of a task from an example of each content."""
    return Messages(check_out=Layout(message(0, broadcast)), check_in=Layout(message(0, check_in)))


def message(version: int, content: Tree) -> Tree:
    """Put the version beside the content."""
    return {"content": content, "version": np.int64(version)}
