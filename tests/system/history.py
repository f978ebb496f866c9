"""The history of a course, checked as it grows: every event is looked at once, so that takes linear time.

Versions and counts are totally ordered, so one number says how far everybody was shown to be when a request came in,
and no later answer may be behind it, whatever was killed in between. A receipt is one line in the server's log, once,
in the slot of its device; it has one charge in that device's ledger, with the hash of the bytes that were sent; and
that charge was on disk before the bytes left.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

_connect = sqlite3.connect
_PAGE = re.compile(rb'id="(version|check_ins)"[^>]*>(\d+)')
_FIRST_PAGE = re.compile(rb'href="/tasks/walk".*?version (\d+).*?([\d,]+) check-in', re.S)
_METRIC = re.compile(rb"^crowdml_version\{.*\} (\d+)$", re.M)

Headers = list[tuple[bytes, bytes]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request that has arrived, and what everybody had been shown by then.

    Attributes:
        who: Who asks.
        route: Method and path.
        floor: What was known of every number.
    """

    who: str
    route: str
    floor: dict[str, int]


class History:
    """Everything that was sent, answered and shown.

    Attributes:
        violations: What must not have happened.
        bodies: The bytes of every check-in, by its key.
        acknowledged: Receipts that the server has answered with, by key.
        answers: How many answers there were, by route and status.
        reads: How many numbers were shown.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.bodies: dict[str, bytes] = {}
        self.acknowledged: dict[str, dict[str, Any]] = {}
        self.answers: Counter[tuple[str, int]] = Counter()
        self.reads = 0
        self._known: dict[str, int] = {}
        self._models: dict[tuple[str, int], bytes] = {}
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The whole course in a line: two runs of a seed have the same."""
        return self._digest.hexdigest()

    def note(self, *what: object) -> None:
        """Let something count as part of the course."""
        self._digest.update(repr(what).encode())

    def violate(self, what: str) -> None:
        """Write down what must not have happened."""
        self.violations.append(what)

    def sent(self, folder: Path, method: str, path: str, headers: dict[bytes, bytes], body: bytes) -> None:
        """Look at what a device sends: a release must be charged, on disk, with these very bytes."""
        if method != "POST" or not path.endswith(("/check-ins", "/masked")):
            return
        key = headers[b"idempotency-key"].decode()
        if self.bodies.setdefault(key, body) != body:
            self.violate(f"{key}: sent again with other bytes")
        with open_file(folder / "ledger.sqlite") as ledger:
            # A charge and its bytes are stored in one transaction; what was charged is compared at the end.
            kept = ledger.execute("SELECT body FROM unsettled WHERE key = ?", (key,)).fetchone()
        if kept is None or kept[0] != body:
            self.violate(f"{key}: sent before it was charged")

    def asked(self, who: str, method: str, path: str, body: bytes) -> Asked:
        """Remember how far everybody was shown to be when a request came in."""
        route = f"{method} {path.partition('?')[0]}"
        self.note(who, route, hashlib.sha256(body).digest())
        return Asked(who, route, dict(self._known))

    def answered(self, asked: Asked, status: int, headers: Headers, content: bytes) -> None:
        """Look at an answer in the moment in which the server gives it."""
        # The header of a model has its names in an order that differs from run to run.
        same = content[8 + int.from_bytes(content[:8], "little") :] if asked.route.endswith("/model") else content
        self.note(asked.who, asked.route, status, same)
        self.answers[asked.route, status] += 1
        if status >= 500 and status != 503:
            self.violate(f"{asked.route}: {status} {content[:200]!r}")
        if status not in (200, 304):
            return
        shown, exact = self._shown(asked, status, dict(headers), content)
        for what, value in shown.items():
            self.reads += 1
            if exact and value < asked.floor.get(what, 0):
                self.violate(f"{asked.route}: {what} {value}, but {asked.floor[what]} was shown before")
            self._known[what] = max(value, self._known.get(what, 0))

    def _shown(
        self, asked: Asked, status: int, headers: dict[bytes, bytes], content: bytes
    ) -> tuple[dict[str, int], bool]:
        """Read the numbers of an answer, and whether they are how things stand or only how far they have come."""
        last = asked.route.rpartition("/")[2]
        if last in ("check-ins", "masked", "reveal") and content[:1] == b"{":
            return self._receipt(asked.who, json.loads(content)), False
        if last == "check-out":
            version = int(headers[b"crowdml-version"])
            if status == 200:
                self._model("check-out", version, content)
            return {"version": version}, True
        if last == "model":
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
            self._model("model", int(header["version"]), content[8 + int.from_bytes(content[:8], "little") :])
            return {"version": int(header["version"]), "check-ins": int(header["check-ins"])}, True
        if last == "me":
            return {f"check-ins of {asked.who}": json.loads(content)["check_ins"]}, True
        if last == "receipts":
            found = json.loads(content)["receipts"]
            return (
                {f"check-ins of {asked.who}": found[-1]["number"], "version": found[-1]["version"]} if found else {}
            ), False
        if last == "devices":
            return {"check-ins": sum(device["check_ins"] for device in json.loads(content)["devices"])}, True
        if last == "curve":
            points = json.loads(content)["curve"]
            return (_standing(points[-1]) if points else {}), False
        if last == "statistics":
            return self._statistics(json.loads(content)), True
        if last == "metrics":
            return {"version": int(_METRIC.findall(content)[0])}, True
        if asked.route == "GET /":
            ((version, check_ins),) = _FIRST_PAGE.findall(content)
            return {"version": int(version), "check-ins": int(check_ins.replace(b",", b""))}, True
        if asked.route.startswith("GET /tasks/"):
            page = {name.decode().replace("_", "-"): int(value) for name, value in _PAGE.findall(content)}
            return page, True
        if asked.route.startswith("GET /v1/tasks/") and asked.route.count("/") == 3:
            return _standing(json.loads(content)), True
        if asked.route == "GET /v1/tasks":
            return _standing(json.loads(content)["tasks"][0]), True
        return {}, True

    def _receipt(self, who: str, told: dict[str, Any]) -> dict[str, int]:
        if "number" not in told:
            return {}
        plain = {name: told[name] for name in ("key", "number", "version")}
        if self.acknowledged.setdefault(told["key"], plain | {"who": who}) != plain | {"who": who}:
            self.violate(f"{told['key']}: two different receipts")
        return {"version": told["version"], f"check-ins of {who}": told["number"]}

    def _statistics(self, told: dict[str, Any]) -> dict[str, int]:
        """Days and staleness are counted beside the model: each check-in must be among both, whatever was killed."""
        for part in ("participation", "staleness"):
            if (found := sum(each["check_ins"] for each in told[part])) != told["check_ins"]:
                self.violate(f"{part} of {found} check-ins, and there are {told['check_ins']}")
        return _standing(told)

    def _model(self, route: str, version: int, parameters: bytes) -> None:
        if self._models.setdefault((route, version), parameters) != parameters:
            self.violate(f"version {version} was another model before")

    def check_stored(self, path: Path) -> None:
        """Compare what a database has with everything that was shown; for whenever a server has died."""
        with open_file(path) as database:
            found = database.execute("SELECT version, check_ins FROM tasks").fetchone()
            stored = {row[0]: row[1:] for row in database.execute('SELECT "key", number, version FROM receipts')}
        # Where even the task is gone, nothing of it is stored.
        for what, value in zip(("version", "check-ins"), found or (-1, -1), strict=True):
            if value < self._known.get(what, 0):
                self.violate(f"{what} {self._known[what]} was shown, and {value} is stored")
        for key, told in self.acknowledged.items():
            if stored.get(key) != (told["number"], told["version"]):
                self.violate(f"{key}: acknowledged, and lost or another")

    def check_end(self, path: Path, folders: list[Path]) -> int:
        """Compare the server's log with every ledger; return the number of receipts."""
        self.check_stored(path)
        with open_file(path) as database:
            columns = 'slot, "key", hex(body), number, version, started'
            log = database.execute(f"SELECT {columns} FROM receipts ORDER BY id").fetchall()  # noqa: S608
            (version, check_ins) = database.execute("SELECT version, check_ins FROM tasks").fetchone()
        keys = Counter(row[1] for row in log)
        for key, count in keys.items():
            if count > 1:
                self.violate(f"{key}: {count} receipts")
        if check_ins != len(log):
            self.violate(f"{check_ins} check-ins are counted, and {len(log)} have receipts")
        numbers: dict[int, int] = defaultdict(int)
        last = 0
        for slot, key, _, number, reached, started in log:
            if number != numbers[slot] + 1 or not last <= reached <= version or started > reached:
                self.violate(f"{key}: number {number} after {numbers[slot]}, version {reached} after {last}")
            numbers[slot], last = number, reached
        charged, by, owners = dict[str, str](), dict[str, str](), dict[int, str]()
        for folder in folders:
            own = charges(folder)
            if charged.keys() & own.keys():
                self.violate(f"{folder.name}: charged what another has charged")
            charged |= own
            by |= dict.fromkeys(own, folder.name)
        for slot, key, body, *_ in log:
            if charged.get(key, "").upper() != body:
                self.violate(f"{key}: a receipt without its charge")
            elif owners.setdefault(slot, by[key]) != by[key]:
                self.violate(f"{key}: a receipt of {by[key]} in the slot of {owners[slot]}")
        if len(set(owners.values())) < len(owners):
            self.violate("a device has receipts in two slots")
        for key, told in self.acknowledged.items():
            if by.get(key) != told["who"].replace(" ", "-"):
                self.violate(f"{key}: acknowledged to {told['who']}, who has not charged it")
        for key, sent in self.bodies.items():
            if charged.get(key) != hashlib.sha256(sent).hexdigest():
                self.violate(f"{key}: sent, and never charged")
        return len(log)


def charges(folder: Path) -> dict[str, str]:
    """Return what a ledger on disk has charged: hash of the bytes, by key. Twice the same key is not possible in it."""
    with open_file(folder / "ledger.sqlite") as database:
        entries = [json.loads(raw) for (raw,) in database.execute("SELECT raw FROM entries ORDER BY number")]
    made = [entry for entry in entries if entry["kind"] == "charge"]
    found = {entry["key"]: str(entry["body"]) for entry in made}
    assert len(found) == len(made), "one key is charged twice"
    return found


class open_file:
    """A database as another program would read it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> sqlite3.Connection:
        self._database = _connect(f"file:{self._path}?mode=ro", uri=True)
        return self._database

    def __exit__(self, *_: object) -> None:
        self._database.close()


def _standing(shown: dict[str, Any]) -> dict[str, int]:
    return {"version": shown["version"], "check-ins": shown["check_ins"]}
