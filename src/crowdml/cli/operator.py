"""How commands of an operator speak to a server: its address, its token, its errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx

from crowdml.cli.homes import server_home
from crowdml.core import BadInput, CrowdError

TOKEN_VARIABLE = "CROWDML_OPERATOR_TOKEN"  # noqa: S105  the name of a variable
DEFAULT_ADDRESS = "http://127.0.0.1:8800"


class ServerRefused(CrowdError):
    """A server refused what an operator asked for."""


class Operator:
    """A session with a server.

    Args:
        server: Its address; not given: the one whose folder is `home`.
        home: The folder of a server on this machine, for its address and its operator's token.
        ca: Certificate authority that signed the server's certificate, PEM.
    """

    def __init__(self, server: str | None, home: Path | None, ca: Path | None) -> None:
        """Find address and token."""
        folder = server_home(home)
        self.address = (server or _read(folder / "server.address") or DEFAULT_ADDRESS).rstrip("/")
        token = os.environ.get(TOKEN_VARIABLE) or _read(folder / "operator.token")
        if not token:
            raise BadInput(
                "there is no operator's token here",
                where=str(folder / "operator.token"),
                hint=f"run this where the server runs, give its --home, or set {TOKEN_VARIABLE}",
            )
        headers = {"authorization": f"Bearer {token}", "crowdml-protocol": "1"}
        verify: Any = True
        if ca is not None:
            import ssl

            verify = ssl.create_default_context(cafile=str(ca))
        self._session = httpx.Client(base_url=self.address, headers=headers, timeout=60.0, verify=verify)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of its answer."""
        content = self.fetch(method, path, body)
        return content.json() if content.content else None

    def fetch(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request and return its answer, or raise what the server says is wrong."""
        try:
            answer = self._session.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise BadInput(
                f"{self.address} does not answer: {error}", hint="start it with: crowdml serve; or give --server URL"
            ) from None
        if answer.is_success:
            return answer
        try:
            told = answer.json()["error"]
            text = "\n  ".join(part for part in (told["message"], told.get("hint")) if part)
        except (ValueError, KeyError, TypeError):
            text = f"the server answered {answer.status_code}"
        raise ServerRefused(text)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
