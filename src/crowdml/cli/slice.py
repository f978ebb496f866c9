"""crowdml slice: cut a task's model into pieces and say what each costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crowdml.slicing import CostGraph, Costs


def slice_(
    task: Annotated[Path, typer.Argument(help="The task file; its model needs hidden layers.")],
    pieces: Annotated[int, typer.Option(min=1, help="Number of followers, one piece each.")] = 5,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the file, such as model.layers=[75,75]."),
    ] = None,
    slicer: Annotated[str, typer.Option(help="in-order: ours, fewest sums across cuts; metis: the paper's.")] = (
        "in-order"
    ),
    balance: Annotated[float, typer.Option(min=1.001, help="Largest piece against the ideal, at most.")] = 1.03,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the pieces here (.png, .svg or .pdf).")] = None,
) -> None:
    """Cut a model into pieces for several devices.

    Prints what each piece computes, stores and sends for one example, and the published figures where the model is one
    of SliceNet's. No formal guarantee comes with slicing: see crowdml audit.
    """
    from crowdml.algorithms.task_file import load, located
    from crowdml.cli import output
    from crowdml.core import NUMPY
    from crowdml.slicing import cost_graph, costs, cut
    from crowdml.slicing.published import PUBLISHED, recognise

    output.check_paths(json, plot)
    loaded = load(task, set_ or [])
    with located(task, set_ or []):
        graph = cost_graph(loaded.model_for(NUMPY))
    found = costs(graph, cut(graph, pieces, slicer, balance))
    known = PUBLISHED.get(recognise(graph) or "", {}).get(pieces)
    if json != Path("-"):
        _print(graph, found, f"{loaded.name}: {pieces} pieces by {slicer}")
        if known:
            print(
                f"SliceNet's tables V and VII: largest {known.largest}, ideal {known.ideal}; "
                f"{known.kib:.2f} KiB for one example, {known.kib_per_device:.2f} for one device"
            )
    content = {"task": loaded.name, "slicer": slicer} | found.to_json()
    content |= {"neurons": graph.all_nodes, "edges": graph.all_edges, "paper": vars(known) if known else None}
    output.write_json(content, json)
    if plot:
        from crowdml.slicing.plot import cost_figure

        cost_figure(found, plot, f"{loaded.name}: {pieces} pieces by {slicer}")
        output.say(f"figure: {plot}")


def _print(graph: CostGraph, found: Costs, title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None)
    for name in ("piece", "cost", "of ideal", "neurons", "weights", "sums out", "sums in", "KiB"):
        table.add_column(name, justify="right")
    named = [*((str(at + 1), piece) for at, piece in enumerate(found.pieces)), ("dominator", found.dominator)]
    for name, own in named:
        share = f"{own.computation / found.ideal:.3f}" if own.computation else ""
        cells = (own.nodes, own.edges, own.sends, own.receives)
        table.add_row(name, str(own.computation or ""), share, *map(str, cells), f"{own.kib:.2f}")
    console = Console()
    console.print(table)
    for line in (
        f"whole net: {graph.all_nodes} neurons, {graph.all_edges} edges; {found.total} to share out",
        f"computation: largest {found.largest}, ideal {found.ideal:.0f}, balance {found.balance:.4f}",
        f"communication: {found.kib:.2f} KiB for one example, {found.kib_per_device:.2f} for one device",
    ):
        console.print(line, highlight=False)
