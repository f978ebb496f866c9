"""Forms as browsers send them, and everything that looks nearly like one."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from crowdml.server.http.form_bodies import MOST_FIELDS, read_form
from crowdml.server.refusals import Refusal

CODED = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data; boundary=XX"


def part(name: str, content: bytes, file: str | None = None) -> bytes:
    named = "" if file is None else f'; filename="{file}"'
    return f'--XX\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'.encode() + content + b"\r\n"


def test_fields_are_read() -> None:
    form = read_form(f"{CODED}; charset=utf-8", urlencode({"a": "1 + 1 = ü", "b": "x\r\ny\rz", "c": ""}).encode())
    assert form.texts == {"a": "1 + 1 = ü", "b": "x\ny\nz", "c": ""} and form.files == {}
    assert form.text("nothing") == ""


def test_parts_are_read() -> None:
    body = part("a", "ü\r\nzwei".encode()) + part("f", b"\xff\x00\r\n--X", "../../etc/passwd") + part("empty", b"", "")
    form = read_form(PARTS, body + b"--XX--\r\n")
    assert form.texts == {"a": "ü\nzwei"} and form.files == {"f": b"\xff\x00\r\n--X"}
    assert read_form('multipart/form-data; boundary="XX"', body + b"--XX--").texts == form.texts


@pytest.mark.parametrize(
    "body",
    [
        b"a=1&a=2",
        b"a=%FF",
        b"a=%00",
        b"a=%1b[2J",
        b"a%0d%0a=1%7f",
        b"a=%ED%A0%80",
        "a=ü".encode(),
        urlencode([(str(number), "") for number in range(MOST_FIELDS + 1)]).encode(),
    ],
)
def test_odd_fields_are_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="not one that a page"):
        read_form(CODED, body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--XX--x",
        part("a", b"1"),
        b"before" + part("a", b"1") + b"--XX--",
        part("a", b"1") + part("a", b"2") + b"--XX--",
        part("a", b"1", "x") + part("a", b"2", "y") + b"--XX--",
        part("a", b"\xff") + b"--XX--",
        part("a", b"\0") + b"--XX--",
        part('a"; x="', b"1") + b"--XX--",
        b'--XX\r\nContent-Disposition: form-data; name="a"\r\n\r\n--XX--',
        b"--XX\r\nX: y\r\n\r\n1\r\n--XX--",
        b"--XX\r\n" + b"X: y\r\n" * 500 + b'Content-Disposition: form-data; name="a"\r\n\r\n1\r\n--XX--',
        b'--XX\r\nContent-Disposition: attachment; name="a"\r\n\r\n1\r\n--XX--',
        b"".join(part(str(number), b"") for number in range(MOST_FIELDS + 1)) + b"--XX--",
    ],
)
def test_odd_parts_are_refused(body: bytes) -> None:
    with pytest.raises(Refusal, match="not one that a page"):
        read_form(PARTS, body)


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data", f"multipart/form-data; boundary={'x' * 71}"])
def test_another_type_is_no_form(kind: str) -> None:
    with pytest.raises(Refusal, match="no form") as caught:
        read_form(kind, b"a=1")
    assert caught.value.status == 415
