"""crowdml reproduce: figures of the papers by one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crowdml.studies import Report
    from crowdml.studies.run import Found


def reproduce(
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="Which figure; none: list them.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Repetitions; not given: as in the paper.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the report here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figure here (.png, .svg or .pdf).")] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's own setting, where that takes hours.")] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Search hyper-parameters on rows held back from training instead.")
    ] = False,
) -> None:
    """Reproduce a figure of a paper: run it, draw it, and compare with what the paper reports.

    Each row says whether the paper's statement holds, differs, or is a trend without a figure to compare with.
    """
    from crowdml.cli import output
    from crowdml.core import BadInput
    from crowdml.studies import STUDIES
    from crowdml.studies import reproduce as run
    from crowdml.studies import search as run_search

    if id_ is None:
        for name, study in STUDIES.items():
            print(f"{name:24} {study.title}")
        return
    output.check_paths(json, plot)
    study = STUDIES[id_]
    if full:
        if study.full is None:
            raise BadInput(f"{id_} has no larger setting", where="--full", hint="leave it out")
        study = replace(study, task=study.full)
    with output.Progress(id_, quiet=json == Path("-")) as progress:
        if search:
            found = run_search(study, trials or 2, seed, progress.named)
        else:
            report = run(id_, study, trials, seed, progress.named)
    if search:
        _print_search(found)
        return
    if json != Path("-"):
        _print_report(report)
    output.write_json(report.to_json(), json)
    if plot:
        report.plot(plot)
        output.say(f"figure: {plot}")


def _print_report(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{report.id}: {report.title}", title_justify="left", box=None)
    for name, right in (("setting", 0), ("metric", 0), ("paper", 1), ("ours", 1), ("s.d.", 1), ("verdict", 0)):
        table.add_column(name, justify="right" if right else "left")
    for row in report.rows:
        paper = "" if row.paper is None else f"{row.paper:.3f}"
        table.add_row(row.setting, row.metric, paper, f"{row.ours:.4f}", f"{row.std:.4f}", row.verdict)
    console = Console()
    console.print(table)
    for note in report.notes:
        console.print(f"note: {note}", style="dim", highlight=False)
    console.print(
        f"{report.seconds['run']:.1f} s, and {report.seconds['compile']:.1f} s of compiling",
        style="dim",
        highlight=False,
    )


def _print_search(found: list[Found]) -> None:
    """Print the best cells, and whether the best one is the one that the study uses."""
    for own in found:
        print(f"{own.label} ({own.measure})")
        for cell in sorted(own.cells, key=lambda cell: cell.value)[:8]:
            marks = " best" * (cell.name == own.best) + " in use" * (cell.name == own.chosen)
            print(f"  {cell.value:.4f}  {cell.name}{f': {cell.remark}' * bool(cell.remark)}{marks}")
