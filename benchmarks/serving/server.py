"""A server for the benchmark: the real one in several forms, or a bare echo on the same protocol.

    python benchmarks/serving/server.py FORM FOLDER FEATURES [DEVICES]

Forms: durable, one-by-one (a transaction for every check-in), no-store (nothing is written); and echoes, which read a
body and answer: echo (as any application on uvicorn reads one, with an answer as long as a receipt), echo-back (the
answer is the body), echo-lean (read as check-ins are, without copies).
Prints its port and the tokens of its devices as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crowdml.server.http.requests import (
    Asgi,
    Pace,
    Receive,
    Request,
    Scope,
    Send,
    read_body,
    read_large_body,
    send_answer,
)
from crowdml.server.refusals import Answer
from crowdml.server.setup.application import Access, create_app
from crowdml.server.setup.serving import Place, bind, require_identity, serve
from crowdml.server.store import open_store
from crowdml.server.tasks.coordinator import Coordinator, Options
from crowdml.server.tasks.new_task import TaskRequest

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.sessions import enrol

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


RECEIPT = b'{"status":"applied","task":"bench","key":"check-in-00000","number":1,"version":1,"task_hash":"%b"}' % (
    b"0" * 64
)
"""As long as what acknowledges a check-in."""


def echo(form: str) -> Asgi:
    """Make an application that reads a body and answers: what any server on this protocol must do."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        size = next(int(value) for name, value in scope["headers"] if name == b"content-length")
        if form == "echo-lean":
            await read_large_body(Request.of(scope), receive, size)
            await send_answer(send, Answer(status=200, body=RECEIPT))
        else:
            body = await read_body(receive, size)
            await send_answer(send, Answer(status=200, body=body if form == "echo-back" else RECEIPT))

    return app


def main(form: str, folder: Path, features: int, devices: int = DEVICES) -> None:
    """Serve."""
    place = Place(port=0)
    listening = bind(place)
    tokens: list[str] = []
    if form.startswith("echo"):
        app = echo(form)
    else:
        store = open_store(f"sqlite:///{folder}/{form}.sqlite")
        require_identity(store, folder)
        Coordinator(store, lambda _: None).create(TaskRequest(file=TASK.format(features=features)))
        tokens = enrol(store, "bench", devices)
        if form == "no-store":
            store.apply = lambda _: None  # type: ignore[method-assign]
            store.receipts_for = lambda *_: {}  # type: ignore[method-assign]
        options = Options(largest_batch=1) if form == "one-by-one" else Options()
        app = create_app(store, options, Access(device_pace=Pace(per_second=1e9, burst=1 << 30)))
    print(json.dumps({"port": listening.getsockname()[1], "tokens": tokens}), flush=True)
    serve(app, place, listening)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
