"""Statements that stand as text, and what a start does without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sqlalchemy.dialects import sqlite

from crowdml.server.store import Identity, NewTask, open_store
from crowdml.server.store.compiling import compiled
from crowdml.server.store.statements import SQLITE

START = """
import sys
from crowdml.server.store import open_store

with open_store(sys.argv[1]) as store:
    (task,) = store.tasks()
    assert store.identity() and store.devices(task.id) == [] and store.rows(task.id) == {}
    assert store.receipts_for(task.id, [(0, "key")]) == {}
    assert "sqlalchemy" not in sys.modules
    store.set_state(task.id, "paused")
    assert "sqlalchemy" in sys.modules and store.tasks()[0].state == "paused"
"""


def test_what_stands_as_text_is_what_sqlalchemy_writes() -> None:
    assert compiled(sqlite.dialect()) == SQLITE


def test_a_start_and_check_ins_need_no_sqlalchemy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/crowd.sqlite"
    with open_store(url) as store:
        store.set_identity(Identity(signing_key=b"k", operator_token_hash=b"h"))
        store.create_task(
            NewTask(name="walk", state="open", file="", sheet=b"", signature=b"", key=b"", server_state=b"")
        )
    subprocess.run([sys.executable, "-c", START, url], check=True)
