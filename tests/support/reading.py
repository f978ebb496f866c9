"""Somebody who reads everything a server shows, all the time, and the check of the history that this makes.

What any route has shown once must stay so, whatever happens to the server: versions and counts never go back, whichever
routes they are read from, and the model of a version is the same whenever that version is seen.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import load as read_tensors

from crowdml.device.device_home import Home
from tests.support.crowd import Busy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """One number that was shown.

    Attributes:
        route: Where.
        what: What it counts.
        value: The number.
        exact: Whether it is how things stand, or only says that they have come so far.
        began: When it was asked for.
        ended: When it was known.
    """

    route: str
    what: str
    value: int
    exact: bool
    began: float
    ended: float


def violations(history: list[Seen]) -> list[str]:
    """Name every number that is smaller than one that was known before it was asked for."""
    found, by_what = [], defaultdict[str, list[Seen]](list)
    for seen in history:
        by_what[seen.what].append(seen)
    for what, shown in by_what.items():
        shown.sort(key=lambda seen: seen.ended)
        ends = [seen.ended for seen in shown]
        highest = list(itertools.accumulate(shown, _higher))
        for seen in shown:
            before = bisect.bisect_left(ends, seen.began)
            if seen.exact and before and highest[before - 1].value > seen.value:
                known = highest[before - 1]
                found.append(f"{what}: {known.value} at {known.route}, later {seen.value} at {seen.route}")
    return found


def _higher(one: Seen, other: Seen) -> Seen:
    return other if other.value > one.value else one


class Reader(threading.Thread):
    """Reads every route in turn, and writes down what it saw.

    Args:
        server: The server.
        device: A device of its crowd; its token is used, and nothing else of it.
    """

    def __init__(self, server: Any, device: Busy) -> None:
        super().__init__(daemon=True)
        self.server, self.task, self.stop = server, server.task, threading.Event()
        self.operator = (server.folder / "operator.token").read_text().strip()
        member = Home(device.place).member()
        self.token, self.slot = member.token, member.slot
        self.history: list[Seen] = []
        self.models: dict[int, str] = {}
        self.reads: Counter[str] = Counter()
        self.error: BaseException | None = None
        shown = f"/v1/tasks/{self.task}"
        self.routes: dict[str, tuple[str, Callable[[httpx.Response], dict[str, int]]]] = {
            "/v1/tasks": (self.operator, self._list),
            shown: (self.operator, lambda answer: _standing(answer.json())),
            f"{shown}/model": (self.operator, self._model),
            f"{shown}/devices": (self.operator, self._devices),
            f"{shown}/curve": (self.operator, self._curve),
            f"{shown}/events": (self.operator, self._event),
            f"{shown}/check-out": (self.token, self._check_out),
            "/v1/devices/me": (self.token, lambda answer: {self._own: answer.json()["check_ins"]}),
            "/v1/devices/me/receipts": (self.token, self._receipts),
            "/metrics": (self.operator, self._metrics),
            "/": (self.operator, self._first_page),
            f"/tasks/{self.task}": (self.operator, self._page),
        }

    @property
    def _own(self) -> str:
        return f"check-ins of slot {self.slot}"

    def run(self) -> None:
        try:
            with httpx.Client(timeout=20.0) as session:
                while not self.stop.is_set():
                    for path in self.routes:
                        self._read(session, path)
        except BaseException as error:
            self.error = error

    def wait_for_all(self) -> None:
        """Wait until every route has answered once more."""
        before, give_up = self.reads.copy(), time.monotonic() + 60.0
        while any(self.reads[path] <= before[path] for path in self.routes):
            assert self.error is None and time.monotonic() < give_up, (self.error, self.reads)
            time.sleep(0.002)

    def read_once(self) -> None:
        """Read every route once, at the end."""
        with httpx.Client(timeout=20.0) as session:
            before = self.reads.copy()
            for path in self.routes:
                self._read(session, path)
            assert set(self.reads - before) == set(self.routes), "a route did not answer"

    def _read(self, session: httpx.Client, path: str) -> None:
        token, understand = self.routes[path]
        headers = {"authorization": f"Bearer {token}"}
        began = time.monotonic()
        try:
            with session.stream("GET", self.server.address + path, headers=headers) as answer:
                if path.endswith("/events"):
                    answer.extensions["first"] = next(_events(answer))
                else:
                    answer.read()
                assert answer.status_code in (200, 429, 503), (path, answer.status_code)
                found = understand(answer) if answer.status_code == 200 else {}
        except (httpx.TransportError, StopIteration):
            time.sleep(0.005)  # killed just now
            return
        ended, exact = time.monotonic(), not path.endswith(("/curve", "/receipts"))
        self.reads[path] += bool(found)
        self.history += [
            Seen(route=path, what=what, value=value, exact=exact, began=began, ended=ended)
            for what, value in found.items()
        ]

    def _list(self, answer: httpx.Response) -> dict[str, int]:
        (found,) = (task for task in answer.json()["tasks"] if task["task"] == self.task)
        return _standing(found)

    def _model(self, answer: httpx.Response) -> dict[str, int]:
        raw = answer.content
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
        found = {"version": int(header["version"]), "check-ins": int(header["check-ins"])}
        arrays = read_tensors(raw)
        self._remember(
            found["version"], b"".join(np.ascontiguousarray(arrays[key]).tobytes() for key in sorted(arrays))
        )
        return found

    def _remember(self, version: int, parameters: bytes) -> None:
        digest = hashlib.sha256(parameters).hexdigest()
        assert self.models.setdefault(version, digest) == digest, f"version {version} was another model before"

    def _devices(self, answer: httpx.Response) -> dict[str, int]:
        devices = answer.json()["devices"]
        total = {"check-ins": sum(device["check_ins"] for device in devices)}
        return total | {f"check-ins of slot {device['slot']}": device["check_ins"] for device in devices}

    def _curve(self, answer: httpx.Response) -> dict[str, int]:
        points = answer.json()["curve"]
        return _standing(points[-1]) if points else {"version": 0}

    def _event(self, answer: httpx.Response) -> dict[str, int]:
        return _standing(answer.extensions["first"])

    def _check_out(self, answer: httpx.Response) -> dict[str, int]:
        return {"version": int(answer.headers["crowdml-version"])}

    def _receipts(self, answer: httpx.Response) -> dict[str, int]:
        receipts = answer.json()["receipts"]
        return {self._own: receipts[-1]["number"], "version": receipts[-1]["version"]} if receipts else {self._own: 0}

    def _metrics(self, answer: httpx.Response) -> dict[str, int]:
        found = re.search(rf'^crowdml_version{{task="{self.task}"}} (\d+)$', answer.text, re.M)
        assert found is not None, answer.text
        return {"version": int(found[1])}

    def _first_page(self, answer: httpx.Response) -> dict[str, int]:
        found = re.search(rf'href="/tasks/{self.task}".*?version (\d+).*?([\d,]+) check-in', answer.text, re.S)
        assert found is not None, answer.text
        return {"version": int(found[1]), "check-ins": int(found[2].replace(",", ""))}

    def _page(self, answer: httpx.Response) -> dict[str, int]:
        shown = dict(re.findall(r'id="(version|check_ins)"[^>]*>(\d+)', answer.text))
        return {"version": int(shown["version"]), "check-ins": int(shown["check_ins"])}


def _standing(shown: dict[str, Any]) -> dict[str, int]:
    # Every check-in of this task makes a version, so an answer of one moment has as many of the one as of the other.
    assert shown["version"] == shown["check_ins"], shown
    return {"version": shown["version"], "check-ins": shown["check_ins"]}


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def check_history(reader: Reader, crowd: list[Busy], least: int) -> int:
    """Check everything that was read, and read it all once more; return how many numbers were seen.

    Args:
        reader: Who has read; it has stopped.
        crowd: Busy devices; what they were acknowledged belongs to the history.
        least: Reads of each route at least.
    """
    assert reader.error is None, reader.error
    assert min(reader.reads[path] for path in reader.routes) >= least, reader.reads
    now = time.monotonic()
    for device in crowd:
        for told in device.recorder.acknowledged.values():
            seen = Seen(route="receipt", what="version", value=told["version"], exact=False, began=0.0, ended=now)
            reader.history.append(seen)
    reader.read_once()
    found = violations(reader.history)
    assert not found, (len(found), found[:5])
    return len(reader.history)
