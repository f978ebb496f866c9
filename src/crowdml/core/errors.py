"""Every error a user can meet.

    CrowdError
    ├── BadInput             a file, key, value or path is wrong: exit code 2, HTTP 422
    ├── TermsViolated        a task asks for more than the owner accepted
    │   └── CapReached       or for more than the owner's cap leaves
    ├── BudgetExhausted      the ledger cannot cover the next release
    ├── StaleCheckIn         the check-in started from a version that is too old
    ├── MalformedMessage     bytes from the wire are not the message they should be
    ├── NotAuthorised        no token, or one that does not open this door
    ├── TaskClosed           the task takes no more check-ins
    └── Unreachable          the server does not answer

Mistakes of a programmer stay `ValueError` and `TypeError`. A message names the parameter, its value, and
what would be right.
"""

from __future__ import annotations

import json
import math
import shlex
import ssl


class CrowdError(Exception):
    """Root of all errors that crowdml raises on purpose."""


class BadInput(CrowdError):
    """Something the user gave is wrong.

    Attributes:
        what: What is wrong, in one sentence.
        where: File, line and key, as far as they are known.
        hint: What would be right.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        """Keep the three parts apart, so that the CLI and the server can lay them out."""
        self.what, self.where, self.hint = what, where, hint
        super().__init__("\n  ".join(part for part in (f"{where}: {what}" if where else what, hint) if part))


class TermsViolated(CrowdError):
    """A signed task or a message goes beyond the terms that the owner accepted."""


class CapReached(TermsViolated):
    """A task does not fit under the owner's cap beside the others."""


class BudgetExhausted(CrowdError):
    """The device's ledger cannot cover another release."""


class StaleCheckIn(CrowdError):
    """A check-in names a version that is too old to be used."""


class MalformedMessage(CrowdError):
    """Bytes received are not a legal message of this task."""


class NotAuthorised(CrowdError):
    """The caller has no right to do this."""


class TaskClosed(CrowdError):
    """The task is paused or stopped."""


class Unreachable(CrowdError):
    """The server did not answer, for as long as the caller was willing to wait."""


def untrusted(error: BaseException) -> str | None:
    """Return why a certificate is not trusted, if that is what an error comes from."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return str(cause.verify_message)
        cause = cause.__cause__ or cause.__context__
    return None


def positive(**values: float) -> None:
    """Require finite values above zero.

    >>> positive(batch=20)
    """
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{name} must be above zero, not {value}")


def install(extra: str) -> str:
    """Write the command that installs what an extra brings, from wherever crowdml itself was installed."""
    # Imported late: only whoever lacks something needs them.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("crowdml").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = origin.get("url", "")
    option = "-e " if origin.get("dir_info", {}).get("editable") else ""
    if url.startswith("file:"):  # a folder or a wheel
        what = f"{url2pathname(urlsplit(url).path)}[{extra}]"
    elif url:
        vcs = origin.get("vcs_info", {}).get("vcs")
        what = f"crowdml[{extra}] @ {f'{vcs}+' if vcs else ''}{url}"
    else:  # the index that pip asks
        what = f"crowdml[{extra}]"
    return f"pip install {option}{shlex.quote(what)}"
