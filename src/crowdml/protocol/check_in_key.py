"""The idempotency key of a check-in: the same for every resend, new for every release."""

from __future__ import annotations

import secrets


def check_in_key(version: int) -> str:
    """Make a key for a check-in that started from a version.

    It begins with that version, which the check-in itself says too, so that keys of one time lie side by side in the
    server's index; a server stores a random key as faithfully, but with several times the work.

    >>> check_in_key(255)[:11]
    '00000000ff-'
    """
    return f"{version:010x}-{secrets.token_urlsafe(12)}"
