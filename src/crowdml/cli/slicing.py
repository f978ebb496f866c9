"""crowdml slice: cut a model into pieces and say what each costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import change_option

if TYPE_CHECKING:
    from crowdml.slicing import CostGraph, Costs


def slice_(
    task: Annotated[Path, typer.Argument(help="The task file; its model needs hidden layers.")],
    pieces: Annotated[int, typer.Option(min=1, help="Number of followers, one piece each.")] = 5,
    set_: Annotated[list[str] | None, change_option("model.layers=[75,75]")] = None,
    slicer: Annotated[str, typer.Option(help="in-order: ours, fewest sums across cuts; metis: the paper's.")] = (
        "in-order"
    ),
    balance: Annotated[float, typer.Option(min=1.001, help="Largest piece against the ideal, at most.")] = 1.03,
    leg: Annotated[
        float, typer.Option(min=0.0, help="Seconds that a message travels between a device and the server.")
    ] = 0.025,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the pieces here (.png, .svg or .pdf).")] = None,
) -> None:
    """Cut a model into pieces for several devices.

    Prints what each piece computes, stores and sends for one example, and the published figures where the model is one
    of SliceNet's. No formal guarantee comes with slicing: see crowdml audit.
    """
    from crowdml.core import NUMPY
    from crowdml.slicing import cost_graph, costs, cut
    from crowdml.slicing.costs import cost_figure
    from crowdml.slicing.published import PUBLISHED, recognise
    from crowdml.task.task_file import load, located

    output.check_paths(json, plot)
    loaded = load(task, set_ or [])
    title = f"{loaded.name}: {pieces} pieces by {slicer}"
    with located(task, set_ or []):
        graph = cost_graph(loaded.model_for(NUMPY))
    found = costs(graph, cut(graph, pieces, slicer, balance))
    known = PUBLISHED.get(recognise(graph) or "", {}).get(pieces)
    if json != Path("-"):
        _print_costs(graph, found, title, leg)
        if known:
            print(
                f"SliceNet's tables V and VII: largest {known.largest}, ideal {known.ideal}; "
                f"{known.kib:.2f} KiB for one example, {known.kib_per_device:.2f} for one device"
            )
    content = {"task": loaded.name, "slicer": slicer} | found.to_json()
    content["floor"] = {"leg_seconds": leg, "seconds": found.cuts.floor(leg), "batches_per_second": _pace(found, leg)}
    content |= {"neurons": graph.all_nodes, "edges": graph.all_edges, "paper": vars(known) if known else None}
    output.write_json(content, json)
    output.draw(lambda path: cost_figure(found, path, title), plot)


def _pace(found: Costs, leg: float) -> float | None:
    """Batches per second that no group exceeds; None where there is no bound."""
    return 1 / found.cuts.floor(leg) if found.cuts.floor(leg) else None


def _print_costs(graph: CostGraph, found: Costs, title: str, leg: float) -> None:
    from crowdml.slicing.number_formats import NUMBERS

    columns, rows = ("piece", "cost", "of ideal", "neurons", "weights", "sums out", "sums in", "KiB"), []
    for name, piece in [*enumerate(found.pieces, start=1), ("dominator", found.dominator)]:
        share = f"{piece.computation / found.ideal:.3f}" if piece.computation else ""
        cells = (piece.nodes, piece.edges, piece.sends, piece.receives)
        rows.append((name, piece.computation or "", share, *cells, f"{piece.kib:.2f}"))
    output.show(
        output.table(title, columns, rows, right=columns),
        f"whole net: {graph.all_nodes} neurons, {graph.all_edges} edges; {found.total} to share out",
        f"computation: largest {found.largest}, ideal {found.ideal:.0f}, balance {found.balance:.4f}",
        f"communication: {found.kib:.2f} KiB for one example, {found.kib_per_device:.2f} for one device",
        "KiB for one example, by format of numbers: "
        + ", ".join(f"{name} {found.cuts.kib(name):.2f}{_scales(found, name)}" for name in NUMBERS),
        f"time: {found.cuts.hops} hops of two legs; legs of {1000 * leg:g} ms allow "
        + (f"{pace:.2f} batches/s" if (pace := _pace(found, leg)) else "any number of batches/s"),
    )


def _scales(found: Costs, numbers: str) -> str:
    scales = found.cuts.scales(numbers)
    return f" and {scales} bytes of scales" if scales else ""
