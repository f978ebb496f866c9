"""Python and TypeScript agree on mutated messages: both accept them and read the same, or both refuse them."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from crowdml.core import CrowdError
from crowdml.core.errors import MalformedMessage
from crowdml.core.keys import fingerprint
from crowdml.privacy.ledger.ledger_chain import LedgerChain
from crowdml.privacy.ledger.spending import packed
from crowdml.task.live_task import open_task
from crowdml.wire import SignedTask, message
from crowdml.wire.join_link import InviteLink
from crowdml.wire.signed_task import _read
from tests.support.web import built, node
from tests.vectors.make import FOLDER, KEY, make_document

FEW, MANY = 2_000, 100_000
PIECES = (
    '"', "{", "}", "[", "]", ",", ":", "0", "1", "-1", "1.0", "1e2", "01", "9007199254740993", "NaN", "Infinity",
    "null", "true", "false", "\\u0041", "\\", "\x00", " ", "\n", "é", "=", "==", "&", "#", "/", "%41", "@", "+", "_",
    "-", "2.0", '"restored":{"after":1,"version":2},', '"uses":3,', '"pure":"1.5",', "0.5", ".5", "1e999", "\x7f",
)  # fmt: skip
"""What is put into messages."""
SAMPLES = packed(np.array([0, 2, 5]))


class Mutants:
    """Messages of every kind, and what Python says of each."""

    def __init__(self) -> None:
        document = make_document("pca")
        stored = json.loads((FOLDER / "browser_check_ins.json").read_text())
        signed = next(SignedTask.from_json(case["signed"]) for case in stored if case["name"] == "pca")
        self.layout = open_task(document).messages.check_out
        example = self.layout.example["content"]
        entries = json.loads((FOLDER / "ledger.json").read_text())
        raws = [case["raw"] for case in entries] + [case["entry"] for case in stored[:20]]
        self.first = next(raw for raw in raws if '"kind":"accept"' in raw and '"task":"digits"' in raw)
        raws = [_with_samples(raw) for raw in raws]
        self.key = fingerprint(KEY.public)
        self.seeds: dict[str, list[bytes]] = {
            "link": [
                InviteLink(server=server, task="digits", code="c" * 8, key="k" * 8, task_hash="5" * 8).to_url().encode()
                for server in ("https://crowd.example:8800", "http://[::1]:80/a/b", "http://localhost")
            ],
            "document": [signed.text, *(case["signed"]["text"].encode() for case in stored[-3:])],
            "envelope": [json.dumps(signed.to_json()).encode()],
            "check-out": [self.layout.encode(message(version, example)) for version in (0, 7, 1 << 40)],
            "entry": [raw.encode() for raw in raws],
        }

    def make(self, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
        """Make messages, a few of them as they were."""
        draw = random.Random(seed)
        kinds = list(self.seeds)
        for number in range(count):
            kind = kinds[number % len(kinds)]
            given = bytearray(draw.choice(self.seeds[kind]))
            for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
                _mutate(given, draw, self.seeds[kind])
            yield kind, bytes(given)

    def said(self, kind: str, given: bytes) -> str:
        """Say what Python makes of a message."""
        parsers: dict[str, Callable[[bytes], str]] = {
            "link": self._link,
            "document": self._document,
            "envelope": self._envelope,
            "check-out": lambda body: _written(int(self.layout.decode(body)["version"])),
            "entry": self._entry,
        }
        try:
            return f"+{parsers[kind](given)}"
        except CrowdError:
            return "-"

    @staticmethod
    def _link(given: bytes) -> str:
        link = InviteLink.parse(given.decode("latin-1"))
        return " ".join((link.server, link.task, link.code, link.key, link.task_hash))

    @staticmethod
    def _document(given: bytes) -> str:
        read = _read(SignedTask.from_json({"text": given.decode("latin-1"), "signature": "", "key": ""}).text)
        shapes = [["x".join(map(str, array.shape)) for array in arrays.values()] for arrays in read.arrays]
        notice = _written(read.restored.after + read.restored.version) if read.restored else "none"
        written = json.dumps(shapes, separators=(",", ":"))
        parts = (
            _written(read.incarnation),
            written,
            notice,
            str(read.browser is not None).lower(),
            len(read.definition),
        )
        return " ".join(map(str, parts))

    def _envelope(self, given: bytes) -> str:
        try:
            content = json.loads(given)
        except ValueError:
            raise MalformedMessage("no JSON") from None
        return SignedTask.from_json(content).open(self.key).task

    def _entry(self, given: bytes) -> str:
        chain = LedgerChain()
        chain.replay(self.first.encode())
        chain.replay(given, SAMPLES if b'"charge"' in given else b"")
        return chain.head.hex()


def _with_samples(raw: str) -> str:
    """Let a charge name the samples that stand beside it here."""
    entry = json.loads(raw)
    if entry["kind"] != "charge":
        return raw
    return raw.replace(entry["named"], hashlib.sha256(SAMPLES).hexdigest())


def _written(value: int) -> str:
    """Write a whole number; beyond what a browser holds exactly, no task has one."""
    return str(value) if abs(value) < 1 << 53 else "large"


def _mutate(given: bytearray, draw: random.Random, seeds: list[bytes]) -> None:
    at = draw.randrange(len(given) + 1)
    what = draw.randrange(6)
    if what == 0 and given:
        given[at % len(given)] ^= 1 << draw.randrange(8)
    elif what == 1:
        del given[at : at + draw.choice((1, 1, 2, 8))]
    elif what in (2, 3):
        piece = draw.choice(PIECES).encode()
        given[at : at + draw.choice((0, len(piece)))] = piece
    elif what == 4:
        other = draw.choice(seeds)
        given[at:] = other[at:]
    else:
        given += given[: draw.randrange(4)]


def _agree(count: int, seed: int, folder: Path) -> None:
    mutants = Mutants()
    script = built("tests/parse-lines.ts", folder)
    given = list(mutants.make(count, seed))
    lines = "".join(f"{kind} {base64.b64encode(content).decode()}\n" for kind, content in given)
    header = mutants.layout.header[8:]
    arguments = [base64.b64encode(part).decode() for part in (header, mutants.first.encode(), mutants.key.encode())]
    command = [str(node()), "--no-warnings", str(script), *arguments]
    found = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=900, check=True)
    answers = found.stdout.splitlines()
    assert len(answers) == len(given)
    wrong, accepted = [], dict.fromkeys(mutants.seeds, 0)
    for (kind, content), answer in zip(given, answers, strict=True):
        expected = mutants.said(kind, content)
        accepted[kind] += answer.startswith("+")
        if answer != expected:
            wrong.append((kind, content, answer, expected))
    assert not wrong, (len(wrong), wrong[:5])
    least, most = count // len(accepted) // 50, count // len(accepted)
    assert all(least <= number < most for number in accepted.values()), accepted


def test_parsers_agree(tmp_path: Path) -> None:
    _agree(FEW, seed=1, folder=tmp_path)


@pytest.mark.live
def test_parsers_agree_on_many(tmp_path: Path) -> None:
    _agree(MANY, seed=2, folder=tmp_path)
