"""Members of a secure sum that speak by hand, message by message."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.secure_aggregation import BroadcastHash, Peers, SumDevice
from crowdml.secure_aggregation.roster import Roster
from crowdml.secure_aggregation.sum_messages import Mail, read_links

FILE = """
crowdml = 1
name = "walk"
[data]
features = 3
labels = ["standing", "walking"]
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
per-round = 4
[privacy]
mode = "none"
[secure-aggregation]
enabled = true
honest = 1.0
drop-out = 0.25
"""


class Taker:
    """A member that speaks by hand."""

    def __init__(self, server: Any) -> None:
        self.server, self.member = server, server.device("walk")
        self.form = self.member.live.masked
        self.peers = Peers(self.member.key, "walk")

    def look(self) -> dict[str, Any]:
        answer = self.server.send("GET", "/v1/tasks/walk/sums", headers=self.member.bearer)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def begin(self) -> None:
        answer = self.member.check_out()
        assert answer.status_code == 200  # it is invited from here on
        present = self.look()
        self.task_hash = self.server.show("walk")["task_hash"]
        self.name, self.shown = present["sum"], BroadcastHash.of(present["version"], answer.content, self.task_hash)
        self.machine = self.fresh(present["version"], present["attempt"])

    def fresh(self, version: int, attempt: int) -> SumDevice:
        member = self.member
        terms = replace(self.form.terms, task_hash=self.task_hash)
        return SumDevice(terms, version, attempt, member.slot, member.key, self.peers, self.shown)

    def headers(self, **more: str) -> dict[str, str]:
        given = {
            "crowdml-sum": self.name,
            "content-type": "application/octet-stream",
            "idempotency-key": "key-of-it",
        }
        return dict(self.member.bearer) | given | more

    def post(self, stage: str, body: bytes, **more: str) -> Future[Any]:
        """Hand a message over without waiting for the answer, which comes when the stage is closed."""
        path = f"/v1/tasks/walk/sums/{stage}"
        begun: Future[Any] = self.server.begin("POST", path, headers=self.headers(**more), content=body)
        return begun

    def refusal(self, stage: str, body: bytes, **more: str) -> tuple[int, str]:
        answer = self.post(stage, body, **more).result(20)
        return answer.status_code, answer.json()["error"]["code"]


def bodies(futures: list[Future[Any]]) -> list[bytes]:
    answers = [future.result(20) for future in futures]
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    return [answer.content for answer in answers]


def greet(crowd: list[Taker]) -> list[bytes]:
    return bodies([taker.post("hello", taker.machine.hello().to_bytes()) for taker in crowd])


def settle(crowd: list[Taker]) -> None:
    links = [taker.machine.meet(Roster.of(shown)) for taker, shown in zip(crowd, greet(crowd), strict=True)]
    opened = bodies([taker.post("order-1", link) for taker, link in zip(crowd, links, strict=True)])
    for taker, raw in zip(crowd, opened, strict=True):
        assert taker.machine.settle(read_links(raw, taker.machine.members)) is None


def exchange(crowd: list[Taker]) -> list[Mail]:
    settle(crowd)
    sealed = bodies([taker.post("shares", taker.machine.share().to_bytes()) for taker in crowd])
    return [Mail.of(raw, taker.machine.members, taker.machine.near) for taker, raw in zip(crowd, sealed, strict=True)]


def masked(crowd: list[Taker]) -> list[bytes]:
    found = []
    for taker, mail in zip(crowd, exchange(crowd), strict=True):
        vector = np.zeros(taker.form.terms.size, np.int64)
        vector[0], vector[-1] = 65536, 1
        found.append(taker.machine.mask(mail, vector))
    return found
