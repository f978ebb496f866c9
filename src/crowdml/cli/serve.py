"""crowdml serve: open tasks to real devices. crowdml backup, crowdml restore: copies of everything a server keeps.

crowdml operator: the operator's token, and the log of who did what.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import command_group, one_blas_thread
from crowdml.cli.task import Ca, Json, Server

if TYPE_CHECKING:
    from crowdml.server.http.requests import Asgi
    from crowdml.server.setup.application import Access
    from crowdml.server.setup.local_tls import LocalTls
    from crowdml.server.setup.serve_options import Endpoint
    from crowdml.server.tasks.coordinator import Options

Home = Annotated[
    Path | None,
    typer.Option(help="The server's folder, with database and operator's token. Not given: the user's data folder."),
]
Db = Annotated[
    str | None, typer.Option(help="Database: sqlite:///FILE or postgresql://…  Not given: a file in --home.")
]

operator = command_group("Look after the operator's access to a server: its token, and the log of who did what.")

DAY_S = 86_400
YEAR_S = 365 * DAY_S
_COLUMNS = ("time (UTC)", "who", "what", "count", "task", "device", "more")


def serve(
    home: Home = None,
    db: Db = None,
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
    one_blas_thread()
    gc.disable()  # what is loaded now stays: `serving.serve` looks for garbage from then on
    from crowdml.cli.operator import database_url, remember_server, server_home
    from crowdml.server.setup.serve_options import ServeOptions, endpoint_of
    from crowdml.server.setup.serving import TOKEN_FILE, Place, bind
    from crowdml.server.setup.serving import serve as run
    from crowdml.server.tasks.coordinator import Options

    endpoint = endpoint_of(
        ServeOptions(
            host=host,
            address=address,
            lan=lan,
            tls_cert=tls_cert,
            tls_key=tls_key,
            behind_proxy=behind_proxy,
            insecure=insecure,
        )
    )
    _require_readable(tls_cert, tls_key)
    folder = server_home(home, make=True)
    with _written(folder):
        local = _local_tls(server_home(folder / "tls", make=True), endpoint) if lan else None
    certificate = local.server_file if local else tls_cert
    place = Place(host=endpoint.host, port=port, certificate=certificate, key=tls_key, proxy=endpoint.proxy)
    _log_to_stderr()
    opened = ExitStack()
    listening = opened.enter_context(bind(place))
    address_here = endpoint.local_address(listening.getsockname()[1])
    with opened, _written(folder):
        access = _access(endpoint, address_here, lan, allow_host or [])
        options = Options(patience_s=patience, token_file=folder / TOKEN_FILE)
        app = _open_app(database_url(folder, db), folder, options, access, opened)
        remember_server(folder, address_here, local.authority_file if local else None)
        opened.pop_all()  # from here on they are the application's
    for line in (*_warnings(endpoint, insecure), *(_trust_lines(local) if local else ())):
        output.say(line)
    output.say(f"serving {address_here} (operator's token: {folder / TOKEN_FILE})")
    run(app, place, listening)


def _require_readable(certificate: Path | None, key: Path | None) -> None:
    if certificate:
        from crowdml.server.setup.local_tls import require_readable

        require_readable(certificate, key)


def _open_app(url: str, folder: Path, options: Options, access: Access, opened: ExitStack) -> Asgi:
    """Make the application: on PostgreSQL one of any number of front ends, else the only server of its file."""
    if url.startswith("postgresql"):
        from crowdml.server.setup.front_end import FrontEnd

        front_end = FrontEnd(url, folder, options, access)
        opened.callback(front_end.close)
        return front_end
    from crowdml.server.setup.application import create_app
    from crowdml.server.setup.serving import require_identity
    from crowdml.server.store import open_store

    store = open_store(url)
    opened.callback(store.close)
    require_identity(store, folder)
    return create_app(store, options, access)


def _access(endpoint: Endpoint, address_here: str, lan: bool, more_hosts: list[str]) -> Access:
    """Say by which names and how this server may be asked."""
    from crowdml.server.setup.application import Access

    secure = endpoint.scheme == "https" or endpoint.proxy is not None
    return Access(
        hosts={*endpoint.hosts, *more_hosts},
        address=endpoint.address or (address_here if lan else None),
        scheme="https" if secure else "http",
        # A name in a local network has other servers too, on other ports: they are bound for a day only.
        secure_s=(DAY_S if lan else YEAR_S) if secure else 0,
    )


def _log_to_stderr() -> None:
    from crowdml.server.setup.serving import LogLimit

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LogLimit())
    logging.basicConfig(handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Say in a sentence why what a start writes cannot be written: above all, a full disk."""
    from crowdml.core import BadInput

    try:
        yield
    except OSError as error:
        what = f"{error.filename or folder} cannot be written: {error.strerror or error}"
        raise BadInput(what, where="--home", hint="make room on its disk, or choose another folder") from None


def _local_tls(folder: Path, endpoint: Endpoint) -> LocalTls:
    from crowdml.server.setup.local_tls import require_local_tls

    return require_local_tls(folder, endpoint.names)


def _warnings(endpoint: Endpoint, insecure: bool) -> list[str]:
    """Say what reaches further than somebody may think."""
    from crowdml.server.setup.serve_options import is_everywhere

    lines = []
    if is_everywhere(endpoint.host):
        lines.append(f"warning: {endpoint.host} is every address of this machine, in all its networks")
    if insecure:
        lines.append("warning: no TLS: whoever is on the way reads tokens and contributions, and can change them")
    return lines


def _trust_lines(local: LocalTls) -> list[str]:
    """Say how owners come to trust this server."""
    made = "a new certificate authority, which nobody trusts yet" if local.new_authority else "certificate authority"
    return [
        f"{made}: {local.authority_file}",
        f"  SHA-256 fingerprint: {local.fingerprint}",
        "  hand the file to owners, and the fingerprint in a different way, so that they can compare it",
        "  a Python device trusts it with: crowdml device join LINK --ca ca.pem",
        "  a phone trusts it after installing the file as a certificate authority, in its security settings",
        f"  the server's certificate holds until {local.until:%Y-%m-%d}; a start within its last 30 days renews it",
    ]


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the backup; must not exist yet.")],
    home: Home = None,
    db: Db = None,
) -> None:
    """Copy everything a server keeps into one file; the server may go on working.

    The file holds the operator's secret key: keep it as safe as the database itself.
    """
    from crowdml.cli.operator import database_url
    from crowdml.server.store.backups import backup as run

    run(database_url(home, db), file)
    output.say(f"backup: {file} ({file.stat().st_size} bytes)")


def restore(
    file: Annotated[Path, typer.Argument(help="The backup.")],
    home: Home = None,
    db: Db = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is in the database.")] = False,
) -> None:
    """Bring a backup into the database of a server that is not running.

    Every task gets a new incarnation, signed with the operator's key. Devices whose owners accepted that in advance go
    on; other owners are asked.
    """
    from crowdml.cli.operator import database_url
    from crowdml.server.store.backups import restore as run

    for task, incarnation in run(file, database_url(home, db, make=True), force=force).items():
        output.say(f"restored: {task}, incarnation {incarnation}")
    output.say("Devices go on whose owners accepted restores in advance; the others wait for their owners.")
    if not force:
        # There was nothing to overwrite, or this would have been refused.
        output.say("The database was empty, so whoever was revoked or withdrew since the backup is back: revoke again.")
    output.say("Invites made before do not fit the tasks as they are signed now: make new ones with `crowdml invite`.")


@operator.command()
def rotate(
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
    json: Json = False,
) -> None:
    """Change the operator's token for a new one, and print it: it is shown this once.

    The old token is dead at once, and every browser in which somebody has signed in is signed out. The server writes
    the new token to operator.token in its folder.
    """
    from crowdml.cli.operator import Operator

    token = Operator(server, home, ca).ask("POST", "/v1/operator/token")["token"]
    output.say("the old token opens nothing any more, and all browsers are signed out; this is the new one:")
    if json:
        output.write_json({"token": token}, Path("-"))
    else:
        print(token)


@operator.command()
def log(
    task: Annotated[str | None, typer.Option(help="Only what was done to this task.")] = None,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="How many entries at most, latest first.")] = 50,
    server: Server = None,
    home: Home = None,
    ca: Ca = None,
    json: Json = False,
) -> None:
    """Print who did what, and when: the operator by token or by portal, devices, the server, strangers.

    It holds no secrets. A device stands in it by its number, and no longer after its owner has withdrawn.
    """
    from crowdml.cli.operator import Operator

    session, found = Operator(server, home, ca), list[dict[str, object]]()
    wanted: dict[str, object] = {} if task is None else {"task": task}
    while len(found) < count:
        page = session.ask("GET", f"/v1/operator/log?{urlencode(wanted)}")
        found += page["events"]
        if page["next"] is None:
            break
        wanted["before"] = page["next"]
    _print_events(found[:count], json)


def _print_events(events: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        output.write_json({"events": events}, Path("-"))
        return
    import time

    rows = [
        (
            time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(float(str(event["time"])))),
            *(event["actor"], event["action"], event["count"], event["task"] or ""),
            "" if event["slot"] is None else event["slot"],
            event["detail"],
        )
        for event in events
    ]
    output.show(output.table(None, _COLUMNS, rows))
