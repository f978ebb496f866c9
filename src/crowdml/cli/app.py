"""The `crowdml` program: commands, and what happens when something goes wrong."""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar

import typer

import crowdml
from crowdml.cli import (
    audit,
    compare,
    data,
    device,
    portal,
    privacy,
    reproduce,
    serve,
    simulate,
    slicing,
    task,
)
from crowdml.cli.command_groups import Commands
from crowdml.cli.demos import demo
from crowdml.cli.parts import merge

EXTRAS = {
    **{name: "simulation" for name in ("jax", "sklearn", "matplotlib", "pandas", "PIL", "pymetis")},
    **{name: "server" for name in ("alembic", "fastapi", "jinja2", "segno", "sqlalchemy", "uvicorn")},
    "psycopg": "postgres",
    **{name: "track" for name in ("mlflow", "tensorboardX")},
}
"""Which extra brings a package that the base installation, a device, does without."""

NOT_ON_WINDOWS = ("fcntl", "resource")
"""Modules of Python itself that servers and simulations use, and Windows lacks."""


class Programme(Commands):
    """All commands, under headings that say for whom they are."""

    headings: ClassVar[dict[str, tuple[str, ...]]] = {
        "See it work": ("demo",),
        "Simulate and compare": (
            "simulate",
            "compare",
            "merge",
            "privacy",
            "reproduce",
            "slice",
            "audit",
            "data",
            "cache",
            "import-legacy",
        ),
        "Run a server": ("serve", "task", "invite", "operator", "backup", "restore"),
        "Take part": ("device", "portal"),
    }


ABOUT = """A crowd of devices learns a common model without giving up its data.

Federated learning with differential privacy, simulated and for real. Every device keeps its rows, adds noise to what
it sends, and charges its privacy budget in a ledger before anything leaves. One task file says what is learnt, how, and
on which privacy terms: simulation, server and devices all read it.
"""

app = typer.Typer(
    cls=Programme,
    name="crowdml",
    help=ABOUT,
    epilog="Start with: crowdml demo. Then: crowdml simulate TASK.toml, and crowdml privacy explain TASK.toml",
    no_args_is_help=True,
    add_completion=False,
    # Plain help: the rich one costs 0.3 s at every start.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(name="demo")(demo.demo)
app.command(name="simulate")(simulate.simulate)
app.command(name="compare")(compare.compare)
app.command(name="merge")(merge.merge)
app.command(name="slice")(slicing.slice_)
app.command(name="audit")(audit.audit)
app.command(name="reproduce")(reproduce.reproduce)
app.command(name="serve")(serve.serve)
app.add_typer(task.app, name="task")
app.command(name="invite")(task.invite)
app.add_typer(serve.operator, name="operator")
app.add_typer(device.app, name="device")
app.command(name="backup")(serve.backup)
app.command(name="restore")(serve.restore)
app.command(name="import-legacy")(simulate.import_legacy)
app.add_typer(data.app, name="data")
app.add_typer(simulate.cache, name="cache")
app.add_typer(privacy.app, name="privacy")
app.add_typer(portal.app, name="portal")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"crowdml {crowdml.__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Print the version where that is asked for."""


def _show_help(arguments: list[str]) -> None:
    """Show the help of a command without passing through the others: there typer would load pydantic, 0.3 s."""
    if len(arguments) < 2 or arguments[-1] != "--help":
        return
    command, path = typer.main.get_command(app), ["crowdml"]
    for name in arguments[:-1]:
        below = getattr(command, "commands", {})
        if name not in below:
            return
        command = below[name]
        path.append(name)
    command.main(args=["--help"], prog_name=" ".join(path))


def main() -> None:
    """Run the program. Bad input ends with exit code 2 and one message, never with a traceback."""
    try:
        _show_help(sys.argv[1:])
        app(prog_name="crowdml")
    except BrokenPipeError:
        sys.exit(1)
    except ModuleNotFoundError as error:
        message = _missing(error.name or "")
        if not message:
            raise
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        from crowdml.core.errors import CrowdError  # imported late: it brings NumPy along

        message = str(error) if isinstance(error, CrowdError) else _full_disk(error)
        if not message:
            raise
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def _missing(module: str) -> str:
    """Say what brings a module that a device does without; of other modules nothing."""
    if module in NOT_ON_WINDOWS:
        return "servers and simulations need Linux or macOS\n  on Windows they run under WSL; crowdml device runs here"
    from crowdml.core.errors import install  # imported late, as above

    extra = EXTRAS.get(module.partition(".")[0])
    return f"this needs more than a device does\n  {install(extra)}" if extra else ""


def _full_disk(error: Exception) -> str:
    """Say that there is no room, where that is what went wrong; otherwise nothing."""
    import errno
    import sqlite3

    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = f"{error.filename} cannot be written: {error.strerror}" if error.filename else str(error.strerror)
    elif isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,  # where there is no room for what SQLite keeps beside a file
    ):
        why = f"the disk is full, or fails: {error}"
    else:
        return ""
    return f"{why}\n  make room and run the same command again: nothing that was acknowledged or charged is lost"
