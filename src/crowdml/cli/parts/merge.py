"""crowdml merge: the parts of a run become its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdml.cli import output

if TYPE_CHECKING:
    from crowdml.simulation.parts.part_file import Part
    from crowdml.task import Task


def merge(
    parts: Annotated[list[Path], typer.Argument(metavar="PART...", help="All parts that --shard has written.")],
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves here (.png, .svg or .pdf).")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Keep the result of simulate here, for crowdml.Result.load in Python.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every point of every curve of compare here.")] = None,
    record: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Store the record of reproduce as FOLDER/ID.json.")
    ] = None,
) -> None:
    """Put the parts of a run together: the same result as without --shard, to the last bit.

    Parts of another task, seed, trial count or version are refused, and so are missing ones.
    """
    from crowdml.core.files import writable
    from crowdml.simulation.parts.part_file import read_part
    from crowdml.simulation.parts.put_together import require_one_run

    output.check_paths(json, plot)
    for path in filter(None, (save, csv)):
        writable(path)
    held = [read_part(path) for path in parts]
    request = require_one_run(held)
    outputs = {"json": json, "plot": plot, "save": save, "csv": csv, "record": record}
    takes = {"simulate": ("save",), "compare": ("csv",), "reproduce": ("record",)}[request["command"]]
    unused = {f"--{name}": outputs[name] for name in ("save", "csv", "record") if name not in takes}
    for name in (name for name, value in unused.items() if value):
        from crowdml.core import BadInput

        raise BadInput(f"these are parts of crowdml {request['command']}", where=name, hint="leave it out")
    {"simulate": _simulated, "compare": _compared, "reproduce": _reproduced}[request["command"]](held, request, outputs)


def _simulated(parts: list[Part], request: dict[str, Any], outputs: dict[str, Any]) -> None:
    from dataclasses import replace

    from crowdml.cli.simulate import deliver, with_public_baselines
    from crowdml.simulation import simulate
    from crowdml.simulation.parts.put_together import restore

    task, numbers = _task(request["task"]), _numbers(request)
    notes = restore(parts, [[task]], numbers["trials"], numbers["seed"])
    found = simulate(task, **numbers, engine=request["engine"], resume=True)
    found = with_public_baselines(replace(found, notes=(*found.notes, *notes)))
    deliver(found, json=outputs["json"], plot=outputs["plot"], save=outputs["save"])


def _compared(parts: list[Part], request: dict[str, Any], outputs: dict[str, Any]) -> None:
    from crowdml.cli.compare import deliver
    from crowdml.simulation.parts.put_together import restore
    from crowdml.studies.sweeps import run_cells, side_by_side
    from crowdml.studies.variations import Cell, Variation

    cells = [
        Cell(
            label=each["label"],
            task=_task(each["task"]),
            settings=each["settings"],
            notes=tuple(each["notes"]),
            at=tuple(each["at"]),
        )
        for each in request["cells"]
    ]
    varied = [Variation(key=each["key"], values=tuple(each["values"])) for each in request["varied"]]
    numbers = _numbers(request)
    groups = [[cell.task for cell in group] for group in side_by_side(cells)]
    notes = restore(parts, groups, numbers["trials"], numbers["seed"])
    found = run_cells(cells, varied, **numbers, engine=request["engine"], resume=True)
    deliver(found, numbers["trials"], json=outputs["json"], plot=outputs["plot"], csv=outputs["csv"])
    for note in notes:
        output.say(f"note: {note}")


def _reproduced(parts: list[Part], request: dict[str, Any], outputs: dict[str, Any]) -> None:
    from crowdml.cli.reproduce import ONLY_ITSELF, deliver, in_full
    from crowdml.core import BadInput
    from crowdml.simulation.parts.put_together import restore
    from crowdml.studies import STUDIES, reproduce
    from crowdml.studies.run import groups_of

    study_id, numbers = request["name"], _numbers(request)
    study = in_full(STUDIES[study_id], study_id) if request["full"] else STUDIES[study_id]
    if outputs["record"] and STUDIES[study_id].shares_its_record:
        hint = f"crowdml reproduce {study_id} --curve LABEL --resume --record {outputs['record']}"
        raise BadInput("the record of this study is made curve by curve", where="--record", hint=hint)
    if outputs["record"] and request["full"]:
        raise BadInput(ONLY_ITSELF, where="--record", hint="leave it out: these are parts of a run with --full")
    notes = restore(parts, groups_of(study), numbers["trials"], numbers["seed"])
    report = reproduce(study_id, study, **numbers, resume=True)
    deliver(report, None, outputs["record"], outputs["json"], outputs["plot"])
    for note in notes:
        output.say(f"note: {note}")


def _numbers(request: dict[str, Any]) -> dict[str, Any]:
    return {"trials": int(request["trials"]), "seed": int(request["seed"])}


def _task(values: dict[str, Any]) -> Task:
    from crowdml.simulation.reporting.result_file import without_none
    from crowdml.task import Task

    return Task.model_validate(without_none(values))
