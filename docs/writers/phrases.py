"""How all pages begin, and how they write what code says in its descriptions."""

from __future__ import annotations

GENERATED = "<!-- Written by docs/generate.py from the code: `make docs` writes it anew. -->"


def sentence(text: str | None) -> str:
    """Write all descriptions alike: a capital first, no full stop."""
    text = (text or "").rstrip(".")
    return text[:1].upper() + text[1:] if text[:1].isascii() else text
