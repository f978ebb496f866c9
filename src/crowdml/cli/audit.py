"""crowdml audit: attack a task and say what an attacker can read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crowdml.studies.audit import Audit


def audit(
    task: Annotated[Path, typer.Argument(help="The task file; its algorithm must be slicenet.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the file, such as algorithm.pieces=20."),
    ] = None,
    own_rows: Annotated[int, typer.Option(min=20, help="Rows that the reader has of its own, at most.")] = 500,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw what was read here (.png, .svg or .pdf).")] = None,
) -> None:
    """Measure what leaks from sliced training.

    A device that was dominator before reads what crosses the first cut, with its own rows as its only help; and the
    weights before and after a step are compared. What is read is a lower bound on what leaks: others may read more.
    """
    from crowdml.algorithms.task_file import load, located
    from crowdml.cli import output
    from crowdml.studies.audit import audit as run

    output.check_paths(json, plot)
    loaded = load(task, set_ or [])
    with located(task, set_ or []):
        found = run(loaded, seed=seed, own_rows=own_rows)
    if json != Path("-"):
        _print(found)
    output.write_json(found.to_json(), json)
    if plot:
        from crowdml.studies.audit.plot import audit_figure

        audit_figure(found, plot)
        output.say(f"figure: {plot}")


def _print(found: Audit) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{found.task}: what can be read of a dominator's rows", title_justify="left", box=None)
    for name, right in (("from", 0), ("numbers seen", 1), ("labels right", 1), ("likeness", 1)):
        table.add_column(name, justify="right" if right else "left")
    for own in found.readings:
        table.add_row(own.what, str(own.seen), "" if own.right is None else f"{own.right:.3f}", f"{own.likeness:.4f}")
    console = Console()
    console.print(table)
    console.print(f"a reader with {found.own_rows} rows of its own; likeness is a cosine", highlight=False)
    console.print(f"privacy: {found.guarantee}", highlight=False)
