"""A command that does not exist is answered with the one that was probably meant."""

from __future__ import annotations

import difflib
from typing import Any

from typer.core import TyperGroup

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


class Commands(TyperGroup):
    """A group of commands that knows what people may have meant."""

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


def _meant(word: str) -> str:
    found = next((ours for words, ours in MEANT.items() if word.lower() in words.split()), "")
    return found.format(word.lower())
