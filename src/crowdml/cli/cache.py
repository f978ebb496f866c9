"""`crowdml cache`: what simulations keep to start sooner, and how to take it away."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import command_group

app = command_group("Show or clear compiled programs and checkpoints that simulations keep.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]


@app.command("show")
def show(as_json: AsJson = False) -> None:
    """Say where compiled programs and checkpoints are kept, how many, and how large they are.

    Compiled programs let the next simulation start sooner. They are made for this processor and these versions, take
    512 MiB at most, and the longest unused make room for new ones. $CROWDML_PROGRAMS names another folder, or "off".
    """
    from crowdml.core.files import cache_home
    from crowdml.simulation.engine.program_cache import MOST_BYTES, ProgramCache, find_cache

    home = find_cache()
    cache = home if isinstance(home, ProgramCache) else None
    entries = cache.entries() if cache else []
    runs = [path for path in (cache_home() / "runs").glob("*.safetensors") if path.is_file()]
    found: dict[str, dict[str, Any]] = {
        "programs": {
            "folder": str(cache.folder) if cache else None,
            "entries": len(entries),
            "bytes": sum(size for _, size, _ in entries),
            "most_bytes": MOST_BYTES,
        },
        "checkpoints": {
            "folder": str(cache_home() / "runs"),
            "entries": len(runs),
            "bytes": sum(path.stat().st_size for path in runs),
        },
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    rows = [
        (name, str(kept["entries"]), _size(kept["bytes"]), kept["folder"] or str(home)) for name, kept in found.items()
    ]
    output.show(output.table("", ("kept", "entries", "size", "folder"), rows, right=("entries", "size")))


@app.command("clear")
def clear(as_json: AsJson = False) -> None:
    """Take all compiled programs away; the next simulation compiles anew. Checkpoints of interrupted runs stay."""
    from crowdml.simulation.engine.program_cache import open_cache

    cache = open_cache()
    count, size = cache.clear() if cache else (0, 0)
    if as_json:
        typer.echo(json.dumps({"entries": count, "bytes": size}))
    else:
        output.say(f"{count} compiled {'program' if count == 1 else 'programs'} taken away, {_size(size)}")


def _size(count: int) -> str:
    """Say bytes in the unit people would.

    >>> _size(999), _size(3_500_000)
    ('999 B', '3.3 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
