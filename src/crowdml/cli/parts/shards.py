"""What --shard does: run a part, and write down what `crowdml merge` needs to put it together with the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from crowdml.cli import output

if TYPE_CHECKING:
    from crowdml.studies.variations import Cell, Variation
    from crowdml.task import Task


def shard_option() -> Any:
    """Return the option that runs one part."""
    return typer.Option(metavar="I/N", help="Run part I of N, and keep it as NAME-I-of-N.part for crowdml merge.")


def task_request(task: Task, **options: Any) -> dict[str, Any]:
    """Write down a simulation, so that `crowdml merge` can make it again."""
    return {"command": "simulate", "name": task.name, "task": _plain(task), **options}


def compare_request(cells: Sequence[Cell], varied: Sequence[Variation], **options: Any) -> dict[str, Any]:
    """Write down a comparison."""
    written = [
        {"label": cell.label, "settings": cell.settings, "notes": cell.notes, "at": cell.at, "task": _plain(cell.task)}
        for cell in cells
    ]
    ranges = [{"key": each.key, "values": each.values} for each in varied]
    return {"command": "compare", "name": cells[0].task.name, "cells": written, "varied": ranges, **options}


def run_shard(shard: str, groups: Sequence[Sequence[Task]], request: dict[str, Any], **options: Any) -> None:
    """Run a part and keep it in the working folder.

    Args:
        shard: What `--shard` says.
        groups: The whole run.
        request: What was asked for; it has trials, seed and engine.
        **options: `on` and `resume`.
    """
    from crowdml.core.files import writable
    from crowdml.simulation.cluster.hiring import hire
    from crowdml.simulation.parts.part_file import read_shard, write_part
    from crowdml.simulation.parts.run_part import run_part

    asked = read_shard(shard)
    name = request["name"].replace("/", "-")
    path = Path(f"{name}-{asked.number}-of-{asked.of}.part")
    writable(path)
    numbers = {key: request[key] for key in ("trials", "seed", "engine")}
    with output.Progress(f"{name} {shard}") as progress, hire(options["on"]) as crew:
        part = run_part(groups, asked, request, **numbers, resume=options["resume"], watch=progress.update, crew=crew)
    write_part(path, part)
    output.say(f"part: {path}")


def refuse_outputs(given: dict[str, Any]) -> None:
    """Refuse options that ask for a result, which a part is not."""
    from crowdml.core import BadInput

    for name in (name for name, value in given.items() if value):
        raise BadInput(
            "a part of a run has no result yet", where=name, hint="leave it out, and give it to crowdml merge"
        )


def _plain(task: Task) -> dict[str, Any]:
    return task.model_dump(mode="json", by_alias=True)
