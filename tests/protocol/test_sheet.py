"""The task sheet: what is not signed by the operator, or says something else, is not a sheet."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.protocol import Sheet, SignedSheet, sign_sheet
from crowdml.protocol import sheet as module
from crowdml.protocol.keys import SigningKey, fingerprint
from crowdml.protocol.sheet import read_arrays, write_arrays

KEY = SigningKey(bytes(range(32)))
ARRAYS: tuple[dict[str, Any], ...] = (
    {"mean": np.array([0.5, -0.0, 1e-45], np.float32), "empty": np.zeros((0, 3), np.float32)},
    {},
)
SHEET = Sheet(
    task="walk", incarnation=2, definition={"name": "walk", "data": {"labels": ["a", "ä\n\u2028"]}}, arrays=ARRAYS
)


def signed(**changes: Any) -> SignedSheet:
    """Sign a text whose content was changed: the signature is right, the text is not."""
    content = json.loads(sign_sheet(SHEET, KEY).text) | changes
    text = json.dumps({name: value for name, value in content.items() if value is not ...}).encode()
    return SignedSheet(text=text, signature=KEY.sign(module._PURPOSE + text), key=KEY.public)


def test_a_sheet_comes_back_as_it_was() -> None:
    made = sign_sheet(SHEET, KEY)
    assert made.text.isascii() and len(made.hash) == 64
    again = SignedSheet.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made and again.hash == made.hash
    read = again.open(fingerprint(KEY.public))
    assert (read.task, read.incarnation, read.definition) == (SHEET.task, SHEET.incarnation, SHEET.definition)
    assert all(
        own[name].tobytes() == other[name].tobytes() and own[name].shape == other[name].shape
        for own, other in zip(read.arrays, ARRAYS, strict=True)
        for name in other
    )


def test_the_same_sheet_is_the_same_text() -> None:
    assert sign_sheet(SHEET, KEY) == sign_sheet(SHEET, KEY)
    other = Sheet(task="walk", incarnation=3, definition=SHEET.definition, arrays=ARRAYS)
    assert sign_sheet(other, KEY).hash != sign_sheet(SHEET, KEY).hash


def test_no_byte_of_text_signature_or_key_can_be_changed() -> None:
    made = sign_sheet(SHEET, KEY)
    for name in ("text", "signature", "key"):
        raw = getattr(made, name)
        for at in range(0, len(raw), max(1, len(raw) // 40)):
            damaged = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
            with pytest.raises(NotAuthorised):
                SignedSheet(**{**vars(made), name: damaged}).open(fingerprint(KEY.public))


def test_a_sheet_signed_with_another_key_is_refused_where_the_key_is_known() -> None:
    other = sign_sheet(SHEET, SigningKey.make())
    assert other.open().task == "walk", "a stranger's sheet is a sheet"
    with pytest.raises(NotAuthorised, match="another key"):
        other.open(fingerprint(KEY.public))


def test_a_signature_for_another_purpose_is_refused() -> None:
    made = sign_sheet(SHEET, KEY)
    for purpose in (b"", b"crowdml enrol 1\0", b"crowdml sheet 2\0"):
        with pytest.raises(NotAuthorised):
            SignedSheet(text=made.text, signature=KEY.sign(purpose + made.text), key=made.key).open()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"format": "1"},
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
def test_a_signed_text_that_is_no_sheet_is_malformed(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        signed(**changes).open(fingerprint(KEY.public))


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"1", b"null", b"[" * 100_000, b'{"format": 1}', b"\xff", b'{"format":NaN}']
)
def test_a_signed_text_of_any_kind_is_read_without_harm(text: bytes) -> None:
    with pytest.raises(MalformedMessage):
        SignedSheet(text=text, signature=KEY.sign(module._PURPOSE + text), key=KEY.public).open()


def test_a_sheet_beyond_all_measure_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_SHEET", 100)
    with pytest.raises(MalformedMessage, match="larger than 100"):
        sign_sheet(SHEET, KEY).open()


ENVELOPES: list[Any] = [None, [], "sheet", {}, {"sheet": "a"}, {"sheet": 1, "signature": "", "key": ""}]
ENVELOPES += [{"sheet": text, "signature": "", "key": ""} for text in ("a", "ä", "\ud800")]
ENVELOPES += [{"sheet": "a", "signature": text, "key": ""} for text in ("!", "ä", "A")]


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_an_envelope_of_another_form_is_malformed(envelope: Any) -> None:
    with pytest.raises(MalformedMessage):
        SignedSheet.from_json(envelope).open()


def test_arrays_travel_exactly() -> None:
    read = read_arrays(json.loads(json.dumps(write_arrays(ARRAYS))))
    assert read[0]["mean"].tobytes() == ARRAYS[0]["mean"].tobytes() and read[0]["empty"].shape == (0, 3)
