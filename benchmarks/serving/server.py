"""A server for the benchmark: the real one in several forms, or a bare echo on the same protocol.

    python benchmarks/serving/server.py FORM FOLDER FEATURES

Forms: echo, durable, one-by-one (a transaction for every check-in), no-store (nothing is written).
Prints its port and the tokens of its devices as one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from crowdml.protocol.joining import make_token
from crowdml.server.answers import Answer
from crowdml.server.app import Access, create_app
from crowdml.server.asgi import Receive, Scope, Send, read_body, send_answer
from crowdml.server.coordinator import Coordinator, Options
from crowdml.server.limits import Pace
from crowdml.server.serving import Place, bind, require_identity, serve
from crowdml.server.store import NewDevice, Store, open_store

DEVICES = 200
TASK = """
crowdml = 1
name = "bench"
[data]
features = {features}
labels = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
transform = [{{ kind = "norm", order = 2, at-most = 1.0 }}]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
batch = 20
[privacy]
mode = "sound"
mechanism = "gaussian"
clip = 1.0
epsilon = 8.0
delta = 1e-6
max-uses = 10
"""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Read a body and acknowledge it: what any server on this protocol must do."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    size = next(int(value) for name, value in scope["headers"] if name == b"content-length")
    await read_body(receive, size)
    await send_answer(send, Answer(status=200, body=b'{"status":"applied"}'))


def _enrol(store: Store) -> list[str]:
    """Enrol devices directly in the store."""
    task = store.task("bench")
    assert task is not None
    tokens = [make_token() for _ in range(DEVICES)]
    codes = [hashlib.sha256(f"code {number}".encode()).digest() for number in range(DEVICES)]
    store.add_invites(task.id, codes)
    for number, (token, code) in enumerate(zip(tokens, codes, strict=True)):
        hashed = hashlib.sha256(token.encode()).digest()
        device = NewDevice(id=f"device-{number}", token_hash=hashed, public_key=hashed, joined=0.0)
        store.use_invite(task.id, code, device)
    return tokens


def main(form: str, folder: Path, features: int) -> None:
    """Serve."""
    place = Place(port=0)
    listening = bind(place)
    tokens: list[str] = []
    app: Any = echo
    if form != "echo":
        store = open_store(f"sqlite:///{folder}/{form}.sqlite")
        require_identity(store, folder)
        Coordinator(store, lambda _: None).create(TASK.format(features=features))
        tokens = _enrol(store)
        if form == "no-store":
            store.apply = lambda _: None  # type: ignore[method-assign]
            store.receipts_for = lambda *_: {}  # type: ignore[method-assign]
        options = Options(largest_batch=1) if form == "one-by-one" else Options()
        app = create_app(store, options, Access(device_pace=Pace(per_second=1e9, burst=1 << 30)))
    print(json.dumps({"port": listening.getsockname()[1], "tokens": tokens}), flush=True)
    serve(app, place, listening)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
