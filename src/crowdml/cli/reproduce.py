"""crowdml reproduce: figures of the papers by one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdml.cli import output

if TYPE_CHECKING:
    from crowdml.studies import Report, Study
    from crowdml.studies.records import Record
    from crowdml.studies.run import Found


def reproduce(
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="Which figure; none: list them.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Repetitions; not given: as in the paper.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the report here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figure here (.png, .svg or .pdf).")] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Store the record as FOLDER/ID.json: rows, commit, machine.")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Run nothing: print the record that is in FOLDER/ID.json.")
    ] = None,
    curve: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Run this curve alone; may be repeated. --record adds it to the record."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's own setting, where that takes hours.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted run stopped; finished curves are kept.")
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Search hyper-parameters on rows held back from training instead.")
    ] = False,
) -> None:
    """Reproduce a figure of a paper: run it, draw it, and compare with what the paper reports.

    Each row says whether the paper's statement holds, goes beyond, is a trend at another level, or differs; rows of
    which nothing is claimed are shown, and what nobody has run says so.
    """
    from crowdml.core import BadInput
    from crowdml.studies import STUDIES
    from crowdml.studies import reproduce as run
    from crowdml.studies import search as run_search
    from crowdml.studies.records import read_record

    if id_ is None:
        for name, study in STUDIES.items():
            print(f"{name:24} {study.title}")
        return
    output.check_paths(json, plot)
    study = STUDIES[id_]
    if recorded:
        if record or json or plot or search or full or trials or resume or curve:
            raise BadInput("nothing is run here", where="--recorded", hint="leave out all other options")
        _print_record(read_record(recorded, id_))
        return
    if search and curve:
        raise BadInput("a search goes through all curves", where="--curve", hint="leave one of the two out")
    stored = None
    if record:
        if search or full:
            raise BadInput("only the study itself has a record", where="--record", hint="without --search and --full")
        stored = _require_place(record, id_, bool(curve))
    study = _in_full(study, id_) if full else study
    with output.Progress(id_, quiet=json == Path("-")) as progress:
        if search:
            found = run_search(study, trials or 2, seed, progress.named)
        else:
            report = run(id_, study, trials, seed, progress.named, resume, curve or ())
    if search:
        _print_search(found)
    else:
        _deliver(report, stored, record, json, plot)


def _deliver(report: Report, stored: Record | None, record: Path | None, json: Path | None, plot: Path | None) -> None:
    """Print a report, and write what was asked for."""
    from crowdml.studies.records import record_of, write_record
    from crowdml.studies.single_curves import with_curves

    made = with_curves(stored, report) if report.apart else record_of(report)
    if json != Path("-"):
        _print_record(made)
    output.write_json(report.to_json(), json)
    if record:
        output.say(f"record: {write_record(made, record)}")
    output.draw(report.plot, plot)


def _require_place(folder: Path, study_id: str, more: bool) -> Record | None:
    """Make the folder of a record, and refuse one that cannot be written, before anything is run.

    Returns:
        The record that is there, where more is to come to it.
    """
    from crowdml.core.files import writable
    from crowdml.studies.records import place, read_record

    path = place(folder, study_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    writable(path)
    return read_record(folder, study_id) if more and path.is_file() else None


def _in_full(study: Study, study_id: str) -> Study:
    """Return the study in the paper's own setting."""
    from crowdml.core import BadInput

    if study.full is None:
        raise BadInput(f"{study_id} has no larger setting", where="--full", hint="leave it out")
    return replace(study, task=study.full, curves=study.full_curves or study.curves, missing=())


def _print_record(record: Record) -> None:
    from crowdml.studies.records import cells, curve_lines, provenance

    columns = ("setting", "metric", "paper", "ours", "s.d.", "verdict")
    rows = [cells(row) for row in record.rows]
    output.show(output.table(f"{record.id}: {record.title}", columns, rows, right=columns[2:5]))
    output.show(f"verdict: {record.verdict}")
    claim = [f"claim: {record.claim}. Refuted by {record.refuted_by}."] if record.claim else []
    output.show(
        *claim, *(f"note: {note}" for note in record.notes), provenance(record), *curve_lines(record), style="dim"
    )


def _print_search(found: list[Found]) -> None:
    """Print the best cells, and whether the best one is the one that the study uses."""
    for curve in found:
        print(f"{curve.label} ({curve.measure})")
        for cell in sorted(curve.cells, key=lambda cell: cell.value)[:8]:
            marks = " best" * (cell.name == curve.best) + " in use" * (cell.name == curve.chosen)
            print(f"  {cell.value:.4f}  {cell.name}{f': {cell.remark}' * bool(cell.remark)}{marks}")
