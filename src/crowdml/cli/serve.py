"""crowdml serve: open tasks to real devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    home: Annotated[
        Path | None, typer.Option(help="Folder for database and operator's token. Not given: the user's data folder.")
    ] = None,
    db: Annotated[
        str | None, typer.Option(help="Database: sqlite:///FILE or postgresql://…  Not given: a file in --home.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8800,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name this server answers to, as devices write it.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address that invites carry, such as https://crowd.example.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate, PEM.")] = None,
    patience: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a round invites others in place of silent devices.")
    ] = 30.0,
) -> None:
    """Serve tasks to devices, until a signal comes.

    On the first start an operator's token is made and written to operator.token in --home: `crowdml task create` and
    `crowdml invite` use it. Everything acknowledged is on disk; a restart continues where the tasks were.
    """
    import logging
    import sys

    from crowdml.cli import output
    from crowdml.cli.homes import database_url, server_home
    from crowdml.core import BadInput
    from crowdml.server.app import Access, create_app
    from crowdml.server.coordinator import Options
    from crowdml.server.serving import TOKEN_FILE, Place, bind, require_identity
    from crowdml.server.serving import serve as run
    from crowdml.server.store import open_store

    if (tls_cert is None) != (tls_key is None):
        raise BadInput("a certificate and its key belong together", hint="--tls-cert FILE --tls-key FILE")
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    folder = server_home(home, make=True)
    place = Place(host=host, port=port, certificate=tls_cert, key=tls_key)
    listening = bind(place)
    real_port = listening.getsockname()[1]
    store = open_store(database_url(folder, db))
    require_identity(store, folder)
    own = f"{place.scheme}://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{real_port}"  # noqa: S104  compared
    hosts = {"127.0.0.1", "localhost", "[::1]", host, *(allow_host or ())}
    app = create_app(store, Options(patience_s=patience), Access(hosts=hosts, address=address))
    (folder / "server.address").write_text(own + "\n")
    output.say(f"serving {own} (operator's token: {folder / TOKEN_FILE})")
    run(app, place, listening)
