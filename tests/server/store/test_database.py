"""What a store does without SQLAlchemy, which takes longer to load than all the rest of a start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from crowdml.server.store import Identity, NewTask, open_store

START = """
import sys
from crowdml.server.store import NewDevice, open_store

with open_store(sys.argv[1]) as store:
    (task,) = store.tasks()
    assert store.identity() and store.devices(task.id) == [] and store.rows(task.id) == {}
    assert store.receipts_for(task.id, [(0, "key")]) == {}
    store.set_state(task.id, "paused")
    store.add_invites(task.id, [b"code"])
    store.use_invite(task.id, b"code", NewDevice(id="anna", token_hash=b"t", public_key=b"p", joined=1.0))
    assert store.tasks()[0].state == "paused" and store.revoke("anna") and store.withdraw("anna")
    assert "sqlalchemy" not in sys.modules
"""


def test_a_store_needs_no_sqlalchemy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/crowd.sqlite"
    with open_store(url) as store:
        store.set_identity(Identity(signing_key=b"k", operator_token_hash=b"h"))
        store.create_task(
            NewTask(name="walk", state="open", file="", signed_text=b"", signature=b"", key=b"", server_state=b"")
        )
    subprocess.run([sys.executable, "-c", START, url], check=True)
