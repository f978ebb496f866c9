"""The task document: what is not signed by the operator, or says something else, is not a document."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.core.keys import SigningKey, fingerprint
from crowdml.wire import SignedTask, TaskDocument, sign_task
from crowdml.wire import signed_task as module
from crowdml.wire.signed_task import read_arrays, write_arrays

KEY = SigningKey(bytes(range(32)))
ARRAYS: tuple[dict[str, Any], ...] = (
    {"mean": np.array([0.5, -0.0, 1e-45], np.float32), "empty": np.zeros((0, 3), np.float32)},
    {},
)
DOCUMENT = TaskDocument(
    task="walk", incarnation=2, definition={"name": "walk", "data": {"labels": ["a", "ä\n\u2028"]}}, arrays=ARRAYS
)


def signed(**changes: Any) -> SignedTask:
    """Sign a text whose content was changed: the signature is right, the text is not."""
    content = json.loads(sign_task(DOCUMENT, KEY).text) | changes
    text = json.dumps({name: value for name, value in content.items() if value is not ...}).encode()
    return SignedTask(text=text, signature=KEY.sign(module._PURPOSE + text), key=KEY.public)


def test_a_signed_task_comes_back_as_it_was() -> None:
    made = sign_task(DOCUMENT, KEY)
    assert made.text.isascii() and len(made.hash) == 64
    again = SignedTask.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made and again.hash == made.hash
    read = again.open(fingerprint(KEY.public))
    assert (read.task, read.incarnation, read.definition) == (DOCUMENT.task, DOCUMENT.incarnation, DOCUMENT.definition)
    assert all(
        learnt[name].tobytes() == other[name].tobytes() and learnt[name].shape == other[name].shape
        for learnt, other in zip(read.arrays, ARRAYS, strict=True)
        for name in other
    )


def test_the_same_task_is_the_same_text() -> None:
    assert sign_task(DOCUMENT, KEY) == sign_task(DOCUMENT, KEY)
    other = TaskDocument(task="walk", incarnation=3, definition=DOCUMENT.definition, arrays=ARRAYS)
    assert sign_task(other, KEY).hash != sign_task(DOCUMENT, KEY).hash


def test_no_byte_of_text_signature_or_key_can_be_changed() -> None:
    made = sign_task(DOCUMENT, KEY)
    for name in ("text", "signature", "key"):
        raw = getattr(made, name)
        for at in range(0, len(raw), max(1, len(raw) // 40)):
            damaged = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
            with pytest.raises(NotAuthorised):
                SignedTask(**{**vars(made), name: damaged}).open(fingerprint(KEY.public))


def test_a_task_signed_with_another_key_is_refused_where_the_key_is_known() -> None:
    other = sign_task(DOCUMENT, SigningKey.make())
    assert other.open().task == "walk", "what a stranger signed is a task, too"
    with pytest.raises(NotAuthorised, match="another key"):
        other.open(fingerprint(KEY.public))


def test_a_signature_for_another_purpose_is_refused() -> None:
    made = sign_task(DOCUMENT, KEY)
    for purpose in (b"", b"crowdml enrol 1\0", b"crowdml task 1\0"):
        with pytest.raises(NotAuthorised):
            SignedTask(text=made.text, signature=KEY.sign(purpose + made.text), key=made.key).open()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 1},
        {"format": "2"},
        {"format": 3},
        {"format": ...},
        {"task": 1},
        {"task": ...},
        {"incarnation": "1"},
        {"incarnation": True},
        {"incarnation": 1.0},
        {"definition": []},
        {"definition": ...},
        {"arrays": None},
        {"arrays": [1]},
        {"arrays": [{"mean": {"shape": [3], "values": "AAAA"}}]},
        {"arrays": [{"mean": {"shape": [-1], "values": ""}}]},
        {"arrays": [{"mean": {"shape": [1e9], "values": ""}}]},
        {"arrays": [{"mean": {"shape": [True], "values": "AAAAAA=="}}]},
        {"arrays": [{"mean": {"values": ""}}]},
        {"arrays": [{"mean": {"shape": [1], "values": "AACAfw=="}}]},
    ],
)
def test_a_signed_text_that_is_no_task_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        signed(**changes).open(fingerprint(KEY.public))


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"1", b"null", b"[" * 100_000, b'{"format": 2}', b"\xff", b'{"format":NaN}']
)
def test_a_signed_text_of_any_kind_is_read_without_harm(text: bytes) -> None:
    with pytest.raises(MalformedMessage):
        SignedTask(text=text, signature=KEY.sign(module._PURPOSE + text), key=KEY.public).open()


def test_a_signed_task_beyond_all_measure_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_DOCUMENT", 100)
    with pytest.raises(MalformedMessage, match="larger than 100"):
        sign_task(DOCUMENT, KEY).open()


ENVELOPES: list[Any] = [None, [], "text", {}, {"text": "a"}, {"text": 1, "signature": "", "key": ""}]
ENVELOPES += [{"text": text, "signature": "", "key": ""} for text in ("a", "ä", "\ud800")]
ENVELOPES += [{"text": "a", "signature": text, "key": ""} for text in ("!", "ä", "A")]


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_an_envelope_of_another_form_is_malformed(envelope: Any) -> None:
    with pytest.raises(MalformedMessage):
        SignedTask.from_json(envelope).open()


def test_arrays_travel_exactly() -> None:
    read = read_arrays(json.loads(json.dumps(write_arrays(ARRAYS))))
    assert read[0]["mean"].tobytes() == ARRAYS[0]["mean"].tobytes() and read[0]["empty"].shape == (0, 3)
