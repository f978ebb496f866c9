"""Mutated check-ins against the whole server in this process: headers, parser, bounds, receipts and the fold.

All but every fiftieth come under a key that has its receipt already, so that nothing of them may be applied. The others
have keys of their own: what is legal among them is applied, and what comes of it is finite.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from typing import Any

import numpy as np
from safetensors.numpy import load as read_tensors

from crowdml.server.refusals import Answer
from crowdml.wire.messages import check_in_key
from tests.fuzz.mutants import mutants
from tests.support.application import Application
from tests.support.served import Member

ALLOWED = {200, 409, 413, 422}
"""Receipts, versions of another time, too long, and not what a device of this task may send."""
AT_ONCE = 256
OWN_KEY = 50


class Bodies:
    """Sends mutants to a task.

    Args:
        app: The server; it has the task `walk`.
    """

    def __init__(self, app: Application) -> None:
        self._app, self.met = app, Counter[int]()
        self._device: Member = app.device()
        self._key = check_in_key(0)
        body = self._device.body()
        assert self._device.check_in(body, self._key).status_code == 200
        self._seeds = [body, *(self._device.body(version=1, seed=seed) for seed in range(4))]
        self._numbers = 0
        self.slowest_s = 0.0

    def send(self, count: int, draw: random.Random) -> None:
        """Send so many, and look at every answer."""
        before = self._app.show()
        made = mutants(self._seeds, count, draw)
        while batch := list(itertools.islice(made, AT_ONCE)):
            began = time.thread_time()
            answers = self._app.thread.run(self._exchange(batch))
            self.slowest_s = max(self.slowest_s, time.thread_time() - began)
            for body, answer in zip(batch, answers, strict=True):
                assert answer.status in ALLOWED, (answer.status, answer.body, body.hex())
                self.met[answer.status] += 1
        self._check(before)

    async def _exchange(self, batch: list[bytes]) -> list[Answer]:
        """Give bodies to the server as its connections do; return their answers."""
        loop = asyncio.get_running_loop()
        futures = []
        for body in batch:
            future: asyncio.Future[Answer] = loop.create_future()
            futures.append(future)
            self._numbers += 1
            fresh = self._numbers % OWN_KEY == 0
            headers = self._device.headers(f"mutant-{self._numbers}" if fresh else self._key)
            told = headers | {"host": "127.0.0.1", "content-length": str(len(body))}
            pairs = [(name.encode(), value.encode()) for name, value in told.items()]
            door: Any = self._app.app
            expected = door.expect(b"POST", b"/v1/tasks/walk/check-ins", pairs, "127.0.0.1", "http")
            if isinstance(expected, Answer):
                future.set_result(expected)
            else:
                expected.take(body, future.set_result)
        return list(await asyncio.gather(*futures))

    def _check(self, before: dict[str, Any]) -> None:
        """Compare what the server has with what it has answered."""
        after, receipts = self._app.show(), self._device.receipts()
        keys = [receipt["key"] for receipt in receipts]
        assert len(set(keys)) == len(keys), "counted twice"
        assert after["check_ins"] - before["check_ins"] <= self._numbers // OWN_KEY, "a used key was counted again"
        model = read_tensors(self._app.as_operator("GET", "/v1/tasks/walk/model").content)
        assert all(np.isfinite(part).all() for part in model.values()), "what is not a number got into the model"
        assert not self._app.failures
