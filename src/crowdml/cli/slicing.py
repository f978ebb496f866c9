"""crowdml slice: cut a model into pieces and say what each costs. crowdml audit: what leaks from training in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import change_option

if TYPE_CHECKING:
    from crowdml.slicing import CostGraph, Costs
    from crowdml.studies.audit import Audit


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


def audit(
    task: Annotated[Path, typer.Argument(help="The task file; its algorithm must be slicenet.")],
    set_: Annotated[list[str] | None, change_option("algorithm.pieces=20")] = None,
    own_rows: Annotated[int, typer.Option(min=20, help="Rows that the reader has of its own, at most.")] = 500,
    transcript: Annotated[
        Path | None, typer.Option(help="Read sums that a live follower has recorded (.npz), instead of simulated ones.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw what was read here (.png, .svg or .pdf).")] = None,
) -> None:
    """Measure what leaks from sliced training.

    A device that was dominator before reads what crosses the first cut, with its own rows as its only help; and the
    weights before and after a step are compared. What is read is a lower bound on what leaks: others may read more.
    """
    from crowdml.slicing.attacks import Transcript
    from crowdml.studies.audit import audit as run
    from crowdml.studies.audit import audit_figure, audit_transcript
    from crowdml.task.task_file import load, located

    output.check_paths(json, plot)
    loaded = load(task, set_ or [])
    with located(task, set_ or []):
        recorded = Transcript.load(transcript) if transcript else None
        found = audit_transcript(loaded, recorded) if recorded else run(loaded, seed=seed, own_rows=own_rows)
    if json != Path("-"):
        _print_readings(found)
    output.write_json(found.to_json(), json)
    output.draw(lambda path: audit_figure(found, path), plot)


def _print_readings(found: Audit) -> None:
    columns, rows = ("from", "numbers seen", "labels right", "chance", "likeness"), []
    for reading in found.readings:
        cells = ((reading.right, ".3f"), (reading.chance, ".3f"), (reading.likeness, ".4f"))
        rows.append(
            (reading.what, reading.seen, *("" if value is None else f"{value:{form}}" for value, form in cells))
        )
    output.show(
        output.table(f"{found.task}: what can be read of a dominator's rows", columns, rows, right=columns[1:]),
        f"a reader with {found.own_rows} rows of its own; likeness is a cosine",
        f"privacy: {found.guarantee}",
    )
