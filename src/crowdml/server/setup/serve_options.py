"""Serve options: on which address a server listens, to which names it answers, and what invites tell devices.

Beyond its own machine a server speaks TLS, or stands behind a proxy that does. Anything else must be asked for by name,
because tokens and contributions would be readable on the way.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from crowdml.core import BadInput, record

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_NOWHERE = "192.0.2.1"
"""An address for documentation: asking for the way there sends nothing."""
_HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


@record
class ServeOptions:
    """What the operator asked for; see `crowdml serve --help`."""

    host: str | None = None
    address: str | None = None
    lan: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: str | None = None
    insecure: bool = False


@record
class Endpoint:
    """Where a server can be reached.

    Attributes:
        host: The address it listens on.
        names: Names and addresses that the certificate made by --lan must be for; empty without --lan.
        hosts: What devices may write in the Host header.
        scheme: http or https.
        address: What invites carry; None: the port is not known yet, or as the request was made.
        proxy: Whose word about the true origin of a request is taken.
    """

    host: str
    names: tuple[str, ...]
    hosts: frozenset[str]
    scheme: str
    address: str | None
    proxy: str | None

    def local_address(self, port: int) -> str:
        """Return the address under which this very machine reaches the server."""
        if self.scheme == "https" and self.address:
            return self.address
        host = self.host
        if is_everywhere(host):
            host = "::1" if ":" in host else "127.0.0.1"
        return f"{self.scheme}://{in_url(host)}:{port}"


def endpoint_of(options: ServeOptions, find: Callable[[], str] | None = None, host_name: str | None = None) -> Endpoint:
    """Work out where a server can be reached, or refuse what would be unsafe.

    Args:
        options: What the operator asked for.
        find: For tests: finds this machine's address in its network.
        host_name: For tests: this machine's name.
    """
    _require_one_way(options)
    host = options.host or ((find or lan_address)() if options.lan else "127.0.0.1")
    secure = options.lan or options.tls_cert is not None
    if not (secure or options.insecure or options.behind_proxy or is_loopback(host)):
        raise BadInput(
            f"{host} is beyond this machine, and without TLS others could read along",
            where="--host",
            hint="--lan makes certificates; --tls-cert FILE --tls-key FILE uses yours; --behind-proxy ADDRESS says "
            "that a proxy does TLS; --insecure says that nobody else is in that network",
        )
    names = _names(host, host_name or socket.gethostname()) if options.lan else ()
    hosts = {*LOOPBACK_NAMES, *map(in_url, names), *(() if is_everywhere(host) else (in_url(host),))}
    if options.address:
        hosts.add(_host_of(options.address))
    return Endpoint(
        host=host,
        names=names,
        hosts=frozenset(name.lower() for name in hosts),
        scheme="https" if secure else "http",
        address=options.address.rstrip("/") if options.address else None,
        proxy=options.behind_proxy,
    )


def _require_one_way(options: ServeOptions) -> None:
    if (options.tls_cert is None) != (options.tls_key is None):
        raise BadInput("a certificate and its key belong together", hint="--tls-cert FILE --tls-key FILE")
    ways = {
        "--lan": options.lan,
        "--tls-cert": options.tls_cert is not None,
        "--behind-proxy": options.behind_proxy is not None,
        "--insecure": options.insecure,
    }
    given = [name for name, wanted in ways.items() if wanted]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} exclude each other", hint="one of them says how others are kept out")
    if options.lan and options.host and (is_everywhere(options.host) or is_loopback(options.host)):
        raise BadInput(
            f"--lan listens on one address of a network, not on {options.host}",
            where="--host",
            hint="leave --host out, or give this machine's address in that network",
        )
    if options.behind_proxy is not None:
        _require_proxy(options)


def _require_proxy(options: ServeOptions) -> None:
    for part in (options.behind_proxy or "").split(","):
        try:
            ipaddress.ip_network(part.strip())
        except ValueError:
            raise BadInput(f"{part!r} is not an address", where="--behind-proxy", hint="such as 127.0.0.1") from None
    if options.address is None or not options.address.startswith("https://"):
        raise BadInput(
            "devices must know under which address the proxy is reached",
            where="--address",
            hint="--address https://crowd.example",
        )


def lan_address() -> str:
    """Return this machine's address in its network: the one from which it would reach others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((_NOWHERE, 9))
            found = str(asking.getsockname()[0])
        except OSError:
            found = "0.0.0.0"  # noqa: S104  compared below
    if is_everywhere(found) or is_loopback(found):
        raise BadInput(
            "this machine seems to be in no network", where="--lan", hint="say which address: --host ADDRESS"
        )
    return found


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("192.168.1.20")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_everywhere(host: str) -> bool:
    """Tell whether an address stands for all addresses of this machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def in_url(host: str) -> str:
    """Write a host as addresses do.

    >>> in_url("::1"), in_url("127.0.0.1")
    ('[::1]', '127.0.0.1')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _names(host: str, host_name: str) -> tuple[str, ...]:
    """List the names of a machine in its network: its address, its name, and its name as neighbours ask for it."""
    full = host_name.lower().rstrip(".")
    candidates = (full, f"{full.partition('.')[0]}.local")
    return tuple(dict.fromkeys((host, *(name for name in candidates if _HOST_NAME.fullmatch(name)))))


def _host_of(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadInput(f"{address} is not an address", where="--address", hint="such as https://crowd.example")
    return in_url(parts.hostname)
