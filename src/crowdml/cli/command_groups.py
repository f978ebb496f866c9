"""Groups of commands: their help lists them under headings, and a word that is none is answered with the right one.

Also what several commands have in common: options, linear algebra with one thread, and which device is meant.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from crowdml.device.device_home import Home

MEANT = {
    "client node worker participant supernode": "device",
    "server superlink start up listen": "serve",
    "run train fit simulation sim": "simulate",
    "join": "device join",
    "status ledger withdraw": "device {}",
    "create show pause resume stop export devices revoke": "task {}",
    "explain": "privacy explain",
    "download datasets dataset": "data get",
    "figures papers replicate": "reproduce",
    "import legacy": "import-legacy",
    "dp": "privacy explain",
    "attack": "audit",
    "dump save": "backup",
    "load": "restore",
}
"""What people type who know other programs, and the command that does it here."""


BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")
"""What the usual libraries of linear algebra read when they are loaded."""


class Commands(TyperGroup):
    """A group of commands that knows what people may have meant.

    Attributes:
        headings: Names of commands by the heading they stand under in the help; none: all under one.
    """

    headings: ClassVar[dict[str, tuple[str, ...]]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, each with the whole first sentence of its help: cut short it teaches nothing."""
        names = self.list_commands(ctx)
        width = max(map(len, names))
        for heading, below in (self.headings or {"Commands": tuple(names)}).items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), _first_sentence(self.commands[name].help)) for name in below])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command, or say which one comes near."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            path = ctx.command_path
            names = self.list_commands(ctx)
            meant = "" if ctx.parent else _meant(args[0])
            close = difflib.get_close_matches(args[0].lower(), names, n=1, cutoff=0.6)
            hint = f"did you mean: {path} {meant or close[0]}" if meant or close else f"there are: {', '.join(names)}"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


def command_group(help: str, epilog: str | None = None) -> typer.Typer:
    """Make a group of commands; its help is plain, since the rich one costs 0.3 s at every start."""
    return typer.Typer(cls=Commands, help=help, epilog=epilog, no_args_is_help=True, rich_markup_mode=None)


def one_blas_thread() -> None:
    """Ask for one thread, unless somebody has said how many there shall be; to be called before NumPy is loaded.

    A server and a device multiply vectors, seldom large matrices. For a vector of 100,000 numbers OpenBLAS wakes a
    thread on every core, and each of them goes on turning for a while after it has done its small part.
    """
    for name in BLAS_VARIABLES:
        os.environ.setdefault(name, "1")


def change_option(example: str) -> Any:
    """Return the option that changes keys of a task file."""
    return typer.Option("--set", metavar="KEY=VALUE", help=f"Change a key of the file, such as {example}.")


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def _meant(word: str) -> str:
    found = next((ours for words, ours in MEANT.items() if word.lower() in words.split()), "")
    return found.format(word.lower())


def device_place(home: Path | None, name: str) -> Path:
    """Return the folder of the device that is meant."""
    from crowdml.device.device_home import default_home

    return default_home(name) if home is None else home


def device_home(home: Path | None, name: str) -> Home:
    """Open the folder of the device that is meant."""
    from crowdml.device.device_home import Home

    return Home(device_place(home, name))


def same_device(home: Path | None, name: str) -> str:
    """Repeat the options that say which device."""
    if home is not None:
        return f" --home {home}"
    return "" if name == "default" else f" --name {name}"
