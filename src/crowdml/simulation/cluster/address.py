"""What `--on` says: a cluster of our own, or the address of one; beyond this machine with a token or TLS alone.

Whoever reaches a Ray cluster may run code on all its machines. Ray itself asks for nothing unless it is told to.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from crowdml.core import BadInput, record

CLIENT = "ray://"
CLIENT_PORT = 10001
WHERE = "--on"


@record
class Place:
    """Where a cluster is.

    Attributes:
        address: What Ray is to be given; empty: a cluster is to be started on this machine.
        host: Its host; empty likewise.
    """

    address: str
    host: str


def read_place(on: str) -> Place:
    """Read what `--on` says.

    >>> read_place("ray")
    Place(address='', host='')
    >>> read_place("ray://127.0.0.1").address
    'ray://127.0.0.1:10001'
    """
    if on == "ray":
        return Place(address="", host="")
    client = on.startswith(CLIENT)
    host, _, port = on.removeprefix(CLIENT).rpartition(":")
    if client and not host:
        host, port = port, str(CLIENT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(f'"{on}" is no cluster', where=WHERE, hint="ray, ray://HOST:PORT, or HOST:PORT of its head")
    shown = f"[{host}]" if ":" in host else host
    return Place(address=f"{CLIENT * client}{shown}:{port}", host=host)


def require_guarded(place: Place) -> None:
    """Refuse a cluster beyond this machine that we would speak to without a token or TLS."""
    if not place.address or is_loopback(place.host) or has_token() or os.environ.get("RAY_USE_TLS") == "1":
        return
    raise BadInput(
        f"{place.address} is beyond this machine, and neither a token nor TLS guards it",
        where=WHERE,
        hint="RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, or RAY_USE_TLS=1 with certificates, on "
        "all machines and here; see docs/how-to/run-on-a-cluster.md",
    )


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, whatever any name server says."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def has_token() -> bool:
    """Tell whether Ray would send a token."""
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return False
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN", "").strip()) or path.is_file()
