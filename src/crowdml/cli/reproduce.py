"""crowdml reproduce: figures of the papers by one command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdml.cli import compare, output
from crowdml.cli.parts import shards

if TYPE_CHECKING:
    from crowdml.simulation.workers.crew import Crew
    from crowdml.studies import Report, Study
    from crowdml.studies.records import Record
    from crowdml.studies.run import Found


def reproduce(
    id_: Annotated[str | None, typer.Argument(metavar="[ID]", help="Which figure; none: list them.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Repetitions; not given: as in the paper.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the report here ('-': standard output).")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the figure here (.png, .svg or .pdf); with --all: a folder for all figures."),
    ] = None,
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
    all_: Annotated[bool, typer.Option("--all", help="All figures, one after the other.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A small version, on few rows: shows in seconds that it runs, and nothing else."),
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's own setting, where that takes hours.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted run stopped; finished curves are kept.")
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Search hyper-parameters on rows held back from training instead.")
    ] = False,
    on: Annotated[str | None, compare.on_option()] = None,
    shard: Annotated[str | None, shards.shard_option()] = None,
) -> None:
    """Reproduce a figure of a paper: run it, draw it, and compare with what the paper reports.

    Each row says whether the paper's statement holds, goes beyond, is a trend at another level, or differs; rows of
    which nothing is claimed are shown, and what nobody has run says so.
    """
    from crowdml.core import BadInput
    from crowdml.simulation.cluster.hiring import hire
    from crowdml.studies import STUDIES
    from crowdml.studies import reproduce as run
    from crowdml.studies import search as run_search
    from crowdml.studies.records import read_record
    from crowdml.studies.run import groups_of

    if all_:
        unused = {"ID": id_, "--json": json, "--curve": curve, "--full": full, "--search": search, "--shard": shard}
        _refuse(unused | {"--recorded": recorded, "--record": record and quick}, "--all goes through all figures")
        with hire(on) as crew:
            _reproduce_all(trials, seed, plot, record, quick, resume, crew)
        return
    if id_ is None:
        for name, study in STUDIES.items():
            print(f"{name:24} {study.title}")
        return
    output.check_paths(json, plot)
    study = STUDIES[id_]
    if recorded:
        if record or json or plot or search or full or trials or resume or curve or on or shard:
            raise BadInput("nothing is run here", where="--recorded", hint="leave out all other options")
        _print_record(read_record(recorded, id_))
        return
    if search and curve:
        raise BadInput("a search goes through all curves", where="--curve", hint="leave one of the two out")
    if shard:
        given = {
            "--json": json,
            "--plot": plot,
            "--record": record,
            "--search": search,
            "--curve": curve,
            "--quick": quick,
        }
        shards.refuse_outputs(given)
        chosen = in_full(study, id_) if full else study
        number = trials or chosen.trials
        request = {"command": "reproduce", "name": id_, "full": full, "trials": number, "seed": seed, "engine": None}
        shards.run_shard(shard, groups_of(chosen), request, on=on, resume=resume)
        return
    stored = None
    if record:
        if search or full:
            raise BadInput("only the study itself has a record", where="--record", hint="without --search and --full")
        stored = _require_place(record, id_, bool(curve))
    if quick:
        _refuse({"--full": full, "--search": search, "--record": record}, "a small version shows only that it runs")
        from crowdml.studies.quick import SMALL_ENGINE, in_small

        study = in_small(id_, study)
    study = in_full(study, id_) if full else study
    with output.Progress(id_, quiet=json == Path("-")) as progress, hire(on) as crew:
        if search:
            found = run_search(study, trials or 2, seed, progress.named, crew)
        else:
            engine = SMALL_ENGINE if quick else None
            report = run(id_, study, trials, seed, progress.named, resume, curve or (), crew, engine)
    if search:
        _print_search(found)
    else:
        deliver(report, stored, record, json, plot)


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse the first option that was given."""
    from crowdml.core import BadInput

    for name in (name for name, value in given.items() if value):
        raise BadInput(why, where=name, hint="leave it out")


def _reproduce_all(
    trials: int | None, seed: int, plots: Path | None, record: Path | None, quick: bool, resume: bool, crew: Crew
) -> None:
    """Reproduce one figure after the other, with a line for each; those of other systems take hours and are left out.

    A study that is interrupted goes on with --resume; those whose records are there already are not run again then.
    """
    from crowdml.studies import STUDIES
    from crowdml.studies import reproduce as run
    from crowdml.studies.quick import SMALL_ENGINE, in_small
    from crowdml.studies.records import place, record_of, write_record

    seconds = 0.0
    for name, study in STUDIES.items():
        if name.startswith("external/") and not quick:
            output.say(f"{name}: left out, it takes hours; crowdml reproduce {name}")
            continue
        if resume and record and place(record, name).is_file():
            output.say(f"{name}: its record is there")
            continue
        with output.Progress(name) as progress:
            report = run(
                name,
                in_small(name, study) if quick else study,
                trials,
                seed,
                progress.named,
                resume,
                crew=crew,
                engine=SMALL_ENGINE if quick else None,
            )
        made = record_of(report)
        seconds += report.cpu_seconds or 0.0
        output.show(f"{name:26} {'ran' if quick else made.verdict}, {report.cpu_seconds or 0:.0f} s of CPU time")
        if record:
            place(record, name).parent.mkdir(parents=True, exist_ok=True)
            write_record(made, record)
        if plots:
            plots.mkdir(parents=True, exist_ok=True)
            report.plot(plots / f"{name.replace('/', '-')}.png")
    output.show(f"{seconds:.0f} s of CPU time in all")


def deliver(report: Report, stored: Record | None, record: Path | None, json: Path | None, plot: Path | None) -> None:
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


def in_full(study: Study, study_id: str) -> Study:
    """Return the study in the paper's own setting."""
    from crowdml.core import BadInput

    if study.full is None:
        raise BadInput(f"{study_id} has no larger setting", where="--full", hint="leave it out")
    return study.in_full


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
