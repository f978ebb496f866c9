"""crowdml serve: open tasks to real devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crowdml.server.certificates import LocalTls
    from crowdml.server.reach import Reach

DAY_S = 86_400
YEAR_S = 365 * DAY_S


def serve(
    home: Annotated[
        Path | None, typer.Option(help="Folder for database and operator's token. Not given: the user's data folder.")
    ] = None,
    db: Annotated[
        str | None, typer.Option(help="Database: sqlite:///FILE or postgresql://…  Not given: a file in --home.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Not given: 127.0.0.1, which this machine alone reaches.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8800,
    lan: Annotated[
        bool,
        typer.Option("--lan", help="Listen in the local network, with a certificate authority of this server's own."),
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate, PEM.")] = None,
    behind_proxy: Annotated[
        str | None,
        typer.Option(
            help="Address of a proxy that does TLS; what it says about who asks is believed. Needs --address."
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without TLS: others can read along.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="Address that invites carry, such as https://crowd.example.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name this server answers to, as devices write it.")
    ] = None,
    patience: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a round invites others in place of silent devices.")
    ] = 30.0,
) -> None:
    """Serve tasks to devices, until a signal comes.

    On the first start an operator's token is made and written to operator.token in --home: `crowdml task create` and
    `crowdml invite` use it. Everything acknowledged is on disk; a restart continues where the tasks were.
    """
    import gc
    import logging
    import sys

    # What is loaded now stays: `serving.serve` looks for garbage from then on.
    gc.disable()
    from crowdml.cli import output
    from crowdml.cli.homes import database_url, server_home
    from crowdml.cli.operator import remember_server
    from crowdml.server.app import Access, create_app
    from crowdml.server.coordinator import Options
    from crowdml.server.log_limit import LogLimit
    from crowdml.server.reach import Wish, reach_of
    from crowdml.server.serving import TOKEN_FILE, Place, bind, require_identity
    from crowdml.server.serving import serve as run
    from crowdml.server.store import open_store

    reach = reach_of(
        Wish(
            host=host,
            address=address,
            lan=lan,
            tls_cert=tls_cert,
            tls_key=tls_key,
            behind_proxy=behind_proxy,
            insecure=insecure,
        )
    )
    if tls_cert:
        from crowdml.server.certificates import require_readable

        require_readable(tls_cert, tls_key)
    folder = server_home(home, make=True)
    with _written(folder):
        local = _local_tls(folder, reach) if lan else None
    place = Place(
        host=reach.host,
        port=port,
        certificate=local.server_file if local else tls_cert,
        key=tls_key,
        proxy=reach.proxy,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LogLimit())
    logging.basicConfig(handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    opened = ExitStack()
    listening = opened.enter_context(bind(place))
    own = reach.own_address(listening.getsockname()[1])
    secure = reach.scheme == "https" or reach.proxy is not None
    access = Access(
        hosts={*reach.hosts, *(allow_host or ())},
        address=reach.address or (own if local else None),
        scheme="https" if secure else "http",
        # A name in a local network has other servers too, on other ports: they are bound for a day only.
        secure_s=(DAY_S if lan else YEAR_S) if secure else 0,
    )
    with opened, _written(folder):
        store = open_store(database_url(folder, db))
        opened.callback(store.close)
        require_identity(store, folder)
        app = create_app(store, Options(patience_s=patience), access)
        remember_server(folder, own, local.authority_file if local else None)
        opened.pop_all()  # from here on they are the application's
    for line in (*_warnings(reach, insecure), *(_trust_lines(local) if local else ())):
        output.say(line)
    output.say(f"serving {own} (operator's token: {folder / TOKEN_FILE})")
    run(app, place, listening)


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Say in a sentence why what a start writes cannot be written: above all, a full disk."""
    from crowdml.core import BadInput

    try:
        yield
    except OSError as error:
        what = f"{error.filename or folder} cannot be written: {error.strerror or error}"
        raise BadInput(what, where="--home", hint="make room on its disk, or choose another folder") from None


def _local_tls(folder: Path, reach: Reach) -> LocalTls:
    from crowdml.cli.homes import server_home
    from crowdml.server.certificates import require_local_tls

    return require_local_tls(server_home(folder / "tls", make=True), reach.names)


def _warnings(reach: Reach, insecure: bool) -> list[str]:
    """Say what reaches further than somebody may think."""
    from crowdml.server.reach import is_everywhere

    lines = []
    if is_everywhere(reach.host):
        lines.append(f"warning: {reach.host} is every address of this machine, in all its networks")
    if insecure:
        lines.append("warning: no TLS: whoever is on the way reads tokens and contributions, and can change them")
    return lines


def _trust_lines(local: LocalTls) -> list[str]:
    """Say how owners come to trust this server."""
    made = "a new certificate authority, which nobody trusts yet" if local.new_authority else "certificate authority"
    return [
        f"{made}: {local.authority_file}",
        f"  SHA-256 fingerprint: {local.fingerprint}",
        "  hand the file to owners, and the fingerprint on another way, so that they can compare it",
        "  a Python device trusts it with: crowdml device join LINK --ca ca.pem",
        "  a phone trusts it after installing the file as a certificate authority, in its security settings",
        f"  the server's certificate holds until {local.until:%Y-%m-%d}; a start within its last 30 days renews it",
    ]
