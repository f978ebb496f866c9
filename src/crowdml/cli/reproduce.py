"""crowdml reproduce: figures of the papers by one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
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
        Path | None, typer.Option(metavar="FOLDER", help="Run nothing: print and --plot the record FOLDER/ID.json.")
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
    asked = Asked(trials=trials, seed=seed, resume=resume, on=on, quick=quick, full=full)
    outputs = Outputs(json=json, plot=plot, record=record)
    if all_:
        unused = {"ID": id_, "--json": json, "--curve": curve, "--full": full, "--search": search, "--shard": shard}
        _refuse(unused | {"--recorded": recorded, "--record": record and quick}, "--all goes through all figures")
        _reproduce_all(asked, outputs)
    elif id_ is None:
        _list_studies()
    elif recorded:
        asked_for_more = record or json or search or full or trials or resume or curve or on or shard
        _show_recorded(id_, recorded, plot, bool(asked_for_more))
    elif shard:
        given = {"--json": json, "--plot": plot, "--record": record, "--search": search, "--curve": curve}
        shards.refuse_outputs(given | {"--quick": quick})
        _run_part(id_, shard, asked)
    elif search:
        _refuse({"--record": record}, ONLY_ITSELF)
        _refuse({"--quick": quick}, SMALL)
        _refuse({"--plot": plot, "--resume": resume}, "a search draws nothing and leaves nothing to go on from")
        _search(id_, curve or (), asked, json)
    else:
        _run_study(id_, curve or (), asked, outputs)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is run, and how: options of the same names."""

    trials: int | None
    seed: int
    resume: bool
    on: str | None
    quick: bool
    full: bool

    def study(self, study_id: str) -> Study:
        """Return the study as it stands, in small or in full."""
        from crowdml.studies import STUDIES
        from crowdml.studies.quick import in_small

        study = STUDIES[study_id]
        if self.quick:
            _refuse({"--full": self.full}, SMALL)
            return in_small(study_id, study)
        return in_full(study, study_id) if self.full else study

    @property
    def engine(self) -> str | None:
        """Who computes: small versions are not worth compiling."""
        from crowdml.studies.quick import SMALL_ENGINE

        return SMALL_ENGINE if self.quick else None


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where a report goes: options of the same names."""

    json: Path | None
    plot: Path | None
    record: Path | None


BEST_SHOWN = 8
"""So many cells of a search are printed; --json has all."""
SMALL = "a small version shows only that it runs"
ONLY_ITSELF = "only the study itself has a record"


def _list_studies() -> None:
    from crowdml.studies import STUDIES

    for name, study in STUDIES.items():
        print(f"{name:24} {study.title}")


def _show_recorded(study_id: str, folder: Path, plot: Path | None, asked_for_more: bool) -> None:
    """Print a record, and draw it; nothing is run, so no other option has a meaning."""
    from crowdml.core import BadInput
    from crowdml.studies import STUDIES, drawing
    from crowdml.studies.records import read_record

    _ = STUDIES[study_id]  # refused by name where there is none
    if asked_for_more:
        raise BadInput("nothing is run here", where="--recorded", hint="leave out all other options but --plot")
    output.check_paths(None, plot)
    record = read_record(folder, study_id)
    _print_record(record)
    if plot:
        if record.figure is None:
            hint = f"run it: crowdml reproduce {study_id} --plot FILE"
            raise BadInput("this record has no figure", where="--plot", hint=hint)
        output.draw(partial(drawing.save, record.figure, f"{record.id}: {record.title}"), plot)


def _run_part(study_id: str, shard: str, asked: Asked) -> None:
    """Run one part of a study, and keep it for `crowdml merge`."""
    from crowdml.studies.run import groups_of

    study = asked.study(study_id)
    request = {
        "command": "reproduce",
        "name": study_id,
        "full": asked.full,
        "trials": asked.trials or study.trials,
        "seed": asked.seed,
        "engine": None,
    }
    shards.run_shard(shard, groups_of(study), request, on=asked.on, resume=asked.resume)


def _search(study_id: str, curves: Sequence[str], asked: Asked, json: Path | None) -> None:
    """Search hyper-parameters, of all curves or of some."""
    from crowdml.simulation.cluster.hiring import hire
    from crowdml.studies import search
    from crowdml.version import commit

    output.check_paths(json, None)
    study, trials = asked.study(study_id), asked.trials or 2
    with output.Progress(study_id, quiet=json == Path("-")) as progress, hire(asked.on) as crew:
        found = search(study, trials, asked.seed, progress.named, crew, curves)
    if json != Path("-"):
        _print_search(found)
    searched = [asdict(each) | {"best": each.best} for each in found]
    told = {"id": study_id, "trials": trials, "seed": asked.seed, "commit": commit(), "searched": searched}
    output.write_json(told, json)


def _run_study(study_id: str, curves: Sequence[str], asked: Asked, outputs: Outputs) -> None:
    """Run a study, or some curves of it, and print and write what was found."""
    from crowdml.simulation.cluster.hiring import hire
    from crowdml.studies import STUDIES
    from crowdml.studies import reproduce as run

    output.check_paths(outputs.json, outputs.plot)
    if outputs.record:
        _refuse({"--quick": asked.quick}, SMALL)
    study, stored = asked.study(study_id), None
    if outputs.record:
        shared = STUDIES[study_id].shares_its_record
        _refuse({"--full": asked.full and not shared}, ONLY_ITSELF)
        if shared:  # a part of all curves would take the place of the others
            curves = curves or [curve.label for curve in study.curves]
        stored = _require_place(outputs.record, study_id, bool(curves))
    with output.Progress(study_id, quiet=outputs.json == Path("-")) as progress, hire(asked.on) as crew:
        report = run(
            study_id,
            study,
            asked.trials,
            asked.seed,
            progress.named,
            asked.resume,
            curves,
            crew,
            asked.engine,
        )
    deliver(report, stored, outputs.record, outputs.json, outputs.plot)


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse the first option that was given."""
    from crowdml.core import BadInput

    for name in (name for name, value in given.items() if value):
        raise BadInput(why, where=name, hint="leave it out")


def _reproduce_all(asked: Asked, outputs: Outputs) -> None:
    """Reproduce one figure after the other, with a line for each; those of which a curve takes long are left out.

    A study that is interrupted goes on with --resume; those whose records are there already are not run again then.
    """
    from crowdml.simulation.cluster.hiring import hire
    from crowdml.studies import STUDIES
    from crowdml.studies.records import place

    seconds = 0.0
    with hire(asked.on) as crew:
        for name, study in STUDIES.items():
            if study.hours and not asked.quick:
                output.say(f"{name}: left out, it takes hours; crowdml reproduce {name}")
            elif asked.resume and outputs.record and place(outputs.record, name).is_file():
                output.say(f"{name}: its record is there")
            else:
                seconds += _reproduce_next(name, asked, outputs, crew)
    output.show(f"{seconds:.0f} s of CPU time in all")


def _reproduce_next(name: str, asked: Asked, outputs: Outputs, crew: Crew) -> float:
    """Run one of all figures, say what it found, and write it; return the processor time that it took."""
    from crowdml.studies import reproduce as run
    from crowdml.studies.records import record_of, write_record

    with output.Progress(name) as progress:
        report = run(
            name,
            asked.study(name),
            asked.trials,
            asked.seed,
            progress.named,
            asked.resume,
            crew=crew,
            engine=asked.engine,
        )
    made, seconds = record_of(report), report.cpu_seconds or 0.0
    output.show(f"{name:26} {'ran' if asked.quick else made.verdict}, {seconds:.0f} s of CPU time")
    if outputs.record:
        write_record(made, outputs.record)
    if outputs.plot:
        outputs.plot.mkdir(parents=True, exist_ok=True)
        report.plot(outputs.plot / f"{name.replace('/', '-')}.png")
    return seconds


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
    from crowdml.studies import STUDIES
    from crowdml.studies.records import cells, curve_lines, provenance, search_line

    columns = ("setting", "metric", "paper", "ours", "s.d.", "verdict")
    rows = [cells(row) for row in record.rows]
    output.show(output.table(f"{record.id}: {record.title}", columns, rows, right=columns[2:5]))
    output.show(f"verdict: {record.verdict}")
    claim = [f"claim: {record.claim}. Refuted by {record.refuted_by}."] if record.claim else []
    notes = [f"note: {note}" for note in record.notes]
    said = [provenance(record), search_line(record.id, STUDIES[record.id]), *curve_lines(record)]
    output.show(*claim, *notes, *filter(None, said), style="dim")


def _print_search(found: list[Found]) -> None:
    """Print the best cells and the one that the study uses, and whether more should be tried."""
    for curve in found:
        print(f"{curve.label} ({curve.measure})")
        for place, cell in enumerate(sorted(curve.cells, key=lambda cell: cell.value)):
            marks = " best" * (cell.name == curve.best) + " in use" * (cell.name == curve.chosen)
            if place < BEST_SHOWN or marks:
                print(f"  {cell.value:.4f}  {cell.name}{f': {cell.remark}' * bool(cell.remark)}{marks}")
        if curve.edges:
            print(f"  nothing was tried beyond the best value of {', '.join(curve.edges)}")
