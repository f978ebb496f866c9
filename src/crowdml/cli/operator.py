"""A server's folder on this machine, and how an operator's commands speak to a server: address, token, errors."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdml.cli.output import say
from crowdml.core import BadInput, CrowdError
from crowdml.core.errors import untrusted
from crowdml.core.files import make_folder, require_private, write_whole
from crowdml.wire.messages import PROTOCOL_HEADER, PROTOCOL_VERSION, server_protocol_problem

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "CROWDML_OPERATOR_TOKEN"  # noqa: S105  the name of a variable
ADDRESS_FILE = "server.address"
DEFAULT_ADDRESS = "http://127.0.0.1:8800"


def data_home() -> Path:
    """Return where crowdml keeps data of this user: $XDG_DATA_HOME/crowdml, or ~/.local/share/crowdml."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "crowdml"


def server_home(given: Path | None, make: bool = False) -> Path:
    """Return the server's folder; make it and close it to others where that is asked for."""
    folder = given or data_home() / "server"
    if make:
        make_folder(folder, "--home")
        if require_private(folder, "--home"):
            say(f"note: others could look into {folder}; it is closed to them now (mode 0700)")
    return folder


def database_url(home: Path | None, db: str | None, make: bool = False) -> str:
    """Return the address of the server's database: the given one, or a SQLite file in its folder."""
    return db or f"sqlite:///{server_home(home, make) / 'crowdml.sqlite'}"


class ServerRefused(CrowdError):
    """A server refused what an operator asked for."""


class Operator:
    """A session with a server.

    Args:
        server: Its address; not given: the one whose folder is `home`.
        home: The folder of a server on this machine, for its address and its operator's token.
        ca: Certificate authority that signed the server's certificate, PEM.
        public: Whether only what everybody may read is asked for, so that no token is needed.
    """

    def __init__(self, server: str | None, home: Path | None, ca: Path | None, *, public: bool = False) -> None:
        folder = server_home(home)
        known, _, known_ca = (_read(folder / ADDRESS_FILE) or DEFAULT_ADDRESS).partition("\n")
        self.address = (server or known).rstrip("/")
        if not self.address.startswith(("http://", "https://")):
            raise BadInput(
                f"{self.address} is not the address of a server",
                where="--server",
                hint="such as https://crowd.example:8800",
            )
        if ca is None and known_ca and self.address == known:
            ca = Path(known_ca)
        self._headers = {PROTOCOL_HEADER: str(PROTOCOL_VERSION)}
        if not public:
            self._headers["authorization"] = f"Bearer {_token(folder / 'operator.token')}"
        self._verify = True if ca is None else _trust(ca)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of its answer."""
        content = self.fetch(method, path, body)
        return content.json() if content.content else None

    def fetch(self, method: str, path: str, body: Any = None, *, largest: int | None = None) -> httpx.Response:
        """Send a request and return its answer, or raise what the server says is wrong.

        Args:
            method: HTTP method.
            path: Path, with its query.
            body: What is sent as JSON.
            largest: Refuse an answer of more bytes than this, before they are read.
        """
        # Here, because a server that is started needs this module too, and httpx takes longer than all else of it.
        import httpx

        try:
            with httpx.stream(
                method, self.address + path, json=body, headers=self._headers, verify=self._verify, timeout=60.0
            ) as streamed:
                answer = _whole(streamed, largest)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = untrusted(error)
            if why is not None:
                raise BadInput(
                    f"{self.address} shows a certificate that is not trusted: {why}",
                    hint="give the authority that signed it: --ca FILE (a server's own is tls/ca.pem in its folder)",
                ) from None
            raise BadInput(
                f"{self.address} does not answer: {error}", hint="start it with: crowdml serve; or give --server URL"
            ) from None
        problem = server_protocol_problem(answer.headers)
        if problem is not None:
            raise ServerRefused(problem)
        if answer.is_success:
            return answer
        try:
            told = answer.json()["error"]
            text = "\n  ".join(part for part in (told["message"], told.get("hint")) if part)
        except (ValueError, KeyError, TypeError):
            text = f"the server answered {answer.status_code}"
        raise ServerRefused(text)


def _whole(streamed: httpx.Response, largest: int | None) -> httpx.Response:
    """Read an answer, but never more of it than is wanted."""
    import httpx

    parts, size = [], 0
    for part in streamed.iter_bytes():
        parts.append(part)
        size += len(part)
        if largest is not None and size > largest:
            raise ServerRefused(f"the server sends more than {largest} bytes")
    gone = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(name, value) for name, value in streamed.headers.multi_items() if name not in gone]
    return httpx.Response(streamed.status_code, headers=headers, content=b"".join(parts))


def remember_server(folder: Path, address: str, ca: Path | None) -> None:
    """Let commands on this machine find a server: its address, and on a second line the authority to trust."""
    lines = [address, *([] if ca is None else [str(ca.resolve())])]
    write_whole(folder / ADDRESS_FILE, ("\n".join(lines) + "\n").encode())


def _token(file: Path) -> str:
    """Find the operator's token, or say that it is missing and where it would be."""
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    token = given or _read(file)
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    if token:
        raise BadInput(
            "this is no token: a token is one word of plain letters, digits and signs",
            where=TOKEN_VARIABLE if given else str(file),
            hint="the file operator.token in the folder of the server holds it",
        )
    if file.exists() and not os.access(file, os.R_OK):
        raise BadInput(
            "the operator's token may not be read by you", where=str(file), hint="be the user that runs the server"
        )
    raise BadInput(
        "there is no operator's token here, and only the operator may do this",
        where=str(file),
        hint=f"run this where the server runs, give its --home, or set {TOKEN_VARIABLE}",
    )


def _trust(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:  # ssl.SSLError is one
        raise BadInput(f"{ca} holds no certificates: {error.strerror or error}", where="--ca") from None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
