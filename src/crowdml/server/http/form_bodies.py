"""Forms that browsers send: fields of text, and files, out of a body whose size was limited before it was read.

Every name stands once, every text is UTF-8 without control characters, and there are not many of them. Whatever else
comes is refused as a whole: our own pages never send it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from crowdml.core import record
from crowdml.server.refusals import Refusal

MOST_FIELDS = 200
LONGEST_PART_HEAD = 1024

_BOUNDARY = re.compile(r"""multipart/form-data\s*;\s*boundary=(?:"([^"]{1,70})"|([!-:<-~]{1,70}))\s*""", re.IGNORECASE)
_DISPOSITION = re.compile(r'form-data; name="([^"\r\n]{1,100})"(; filename="[^\r\n]*")?')
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


@record
class Form:
    """What a form holds.

    Attributes:
        texts: Fields by name, with line ends as Unix has them.
        files: Files by the name of their field; none of them is empty.
    """

    texts: Mapping[str, str]
    files: Mapping[str, bytes]

    def text(self, name: str) -> str:
        """Return a field; nothing where it is missing."""
        return self.texts.get(name, "")


def read_form(kind: str, body: bytes) -> Form:
    """Read the body of a form.

    Args:
        kind: Its Content-Type.
        body: Its bytes.
    """
    if kind.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        return _urlencoded(body)
    boundary = _BOUNDARY.fullmatch(kind)
    if boundary is None:
        raise Refusal(415, "type", "this is no form", hint="application/x-www-form-urlencoded or multipart/form-data")
    return _multipart(body, (boundary[1] or boundary[2]).encode("latin-1"))


def _urlencoded(body: bytes) -> Form:
    try:
        # Strictly, both times: a byte that is no text is nobody's name and nobody's token.
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, encoding="utf-8", errors="strict"
        )
    except ValueError:
        raise _malformed() from None
    texts: dict[str, str] = {}
    for name, value in pairs:
        _add(texts, name, value)
    return Form(texts=texts, files={})


def _multipart(body: bytes, boundary: bytes) -> Form:
    """Read parts between boundaries; each has the one header that browsers give, and perhaps a type."""
    mark = b"--" + boundary
    first, *parts = body.split(mark, MOST_FIELDS + 2)
    if first.strip(b"\r\n") or len(parts) > MOST_FIELDS + 1 or not parts or parts[-1].rstrip(b"\r\n") != b"--":
        raise _malformed()
    texts: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in parts[:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        if not (blank and head.startswith(b"\r\n") and content.endswith(b"\r\n")) or len(head) > LONGEST_PART_HEAD:
            raise _malformed()
        name, is_file = _part_name(head)
        if not is_file:
            _add(texts, name, _decoded(content[:-2]))
        elif name in files or name in texts:
            raise _malformed()
        elif content != b"\r\n":
            files[name] = content[:-2]
    return Form(texts=texts, files=files)


def _part_name(head: bytes) -> tuple[str, bool]:
    """Return the name of a part, and whether it is a file; the name that the file had there is of no interest."""
    for line in _decoded(head).splitlines():
        kind, _, value = line.partition(":")
        if kind.strip().lower() == "content-disposition":
            found = _DISPOSITION.fullmatch(value.strip())
            if found is None:
                break
            return found[1], found[2] is not None
    raise _malformed()


def _add(texts: dict[str, str], name: str, value: str) -> None:
    value = value.replace("\r\n", "\n").replace("\r", "\n")
    if name in texts or _CONTROLS.search(name) or _CONTROLS.search(value):
        raise _malformed()
    texts[name] = value


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed() from None


def _malformed() -> Refusal:
    return Refusal(422, "form", "this form is not one that a page of this server sends")
