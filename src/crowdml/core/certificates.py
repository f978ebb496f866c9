"""Certificates that are not trusted, found among the causes of an error of the network."""

from __future__ import annotations

import ssl


def untrusted(error: BaseException) -> str | None:
    """Return why a certificate is not trusted, if that is what an error comes from."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return str(cause.verify_message)
        cause = cause.__cause__ or cause.__context__
    return None
