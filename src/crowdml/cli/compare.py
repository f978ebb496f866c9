"""crowdml compare: tasks side by side, or one task with other values of its keys; `simulate --sweep` does the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import change_option
from crowdml.cli.parts import shards
from crowdml.simulation.workers import start

if TYPE_CHECKING:
    from crowdml.core import BadInput
    from crowdml.data.rows.row_files import RowFile
    from crowdml.studies.sweeps import Comparison
    from crowdml.studies.tracking import Tracker
    from crowdml.studies.variations import Cell, Variation

MEASURES = ("loss", "devices")


def measure_option() -> Any:
    """Return the option that measures more than errors."""
    return typer.Option(
        metavar="loss,devices",
        help="Measure more: the loss along the curve, the error on each device's rows at the end.",
    )


def track_option() -> Any:
    """Return the option that writes results to a tracker."""
    return typer.Option(metavar="mlflow|tensorboard", help="Write the result to MLflow, or for TensorBoard, too.")


def track_to_option() -> Any:
    """Return the option that says where a tracker's store is."""
    return typer.Option(
        metavar="URI|FOLDER",
        help="MLflow's tracking URI ($MLFLOW_TRACKING_URI, or sqlite:///mlflow.db), or TensorBoard's folder (runs).",
    )


def on_option() -> Any:
    """Return the option that says where trials run."""
    return typer.Option(
        metavar="ray|ADDRESS",
        help="Run on a Ray cluster: ray starts one on this machine; ray://HOST:PORT or HOST:PORT joins one.",
    )


def data_option() -> Any:
    """Return the option that hands over a file of rows."""
    return typer.Option(metavar="FILE", help="Rows of your own: a .csv, .npz or .parquet file.")


def compare(
    tasks: Annotated[list[Path], typer.Argument(metavar="TASK.toml...", help="One task file, or several.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,...", help="Try these values of a key, such as algorithm.kind=fedavg,crowd-sgd."),
    ] = None,
    set_: Annotated[list[str] | None, change_option("crowd.passes=10, in all of them")] = None,
    data: Annotated[Path | None, data_option()] = None,
    trials: Annotated[int, typer.Option(min=1, help="Repetitions of each, with its own order, delays and noise.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw all curves here (.png, .svg or .pdf).")] = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="AXIS",
            help="Draw them against samples, versions, time, seconds, bytes_up, bytes_down or epsilon.",
        ),
    ] = "samples",
    csv: Annotated[Path | None, typer.Option(help="Write every point of every curve and trial here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all results here ('-': standard output).")] = None,
    measure: Annotated[str | None, measure_option()] = None,
    track: Annotated[str | None, track_option()] = None,
    track_to: Annotated[str | None, track_to_option()] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted comparison stopped; finished cells are kept.")
    ] = False,
    on: Annotated[str | None, on_option()] = None,
    shard: Annotated[str | None, shards.shard_option()] = None,
) -> None:
    """Compare tasks, or values of a task's keys, side by side.

    With several files each is run. With --vary every combination of values is; another kind of algorithm drops the
    keys that it does not have, and says so. algorithm= is short for algorithm.kind=.
    """
    compare_all(
        tasks,
        vary or [],
        with_measures(set_, measure),
        option="--vary",
        trials=trials,
        seed=seed,
        plot=plot,
        against=against,
        csv=csv,
        json=json,
        tracking=(track, track_to),
        data=data,
        resume=resume,
        on=on,
        shard=shard,
    )


def compare_all(
    tasks: Sequence[Path],
    vary: Sequence[str],
    changes: Sequence[str],
    *,
    option: str,
    trials: int,
    seed: int,
    plot: Path | None,
    json: Path | None,
    against: str = "samples",
    csv: Path | None = None,
    tracking: tuple[str | None, str | None] = (None, None),
    engine: str | None = None,
    data: Path | None = None,
    resume: bool = False,
    on: str | None = None,
    shard: str | None = None,
) -> None:
    """Check everything that could be refused, run all cells, then print and write."""
    output.check_paths(json, plot)
    _check_axis_and_table(against, csv)
    _require_something_to_compare(tasks, vary)
    if on is None:
        start.start_early()
    from crowdml.studies.variations import make_cells, read_base, read_variation

    varied = [read_variation(text, option) for text in vary]
    file = _row_file(data, varied, option)
    cells = make_cells([read_base(task, changes) for task in tasks], varied, option)
    if plot and against == "epsilon":
        _require_epsilon(cells)
    if shard:
        shards.refuse_outputs({"--json": json, "--plot": plot, "--csv": csv, "--track": tracking[0], "--data": data})
        request = shards.compare_request(cells, varied, trials=trials, seed=seed, engine=engine)
        _compare_part(shard, cells, request, on, resume)
        return
    tracker = open_tracking(*tracking, cells[0].task.name)
    for note in dict.fromkeys(note for cell in cells for note in cell.notes):
        output.say(f"note: {note}")
    title = f"{len(cells)} cells of {trials} trial{'s' * (trials > 1)}"
    options: dict[str, Any] = {"trials": trials, "seed": seed, "resume": resume, "engine": engine, "data": file}
    with output.Progress(title, quiet=json == Path("-"), lines=True) as progress:
        found, refused = _run_cells(cells, varied, on, progress, options)
    deliver(found, trials, json=json, plot=plot, csv=csv, against=against)
    for cell in found.cells:
        track_result(tracker, cell.label, found[cell.label])
    for problem in refused:  # last, where it is seen; what the other cells have found is there by now
        output.say(f"error: {problem}")
    if refused:
        sys.exit(2)


def _check_axis_and_table(against: str, csv: Path | None) -> None:
    """Refuse an axis that there is not, and a table that cannot be written."""
    from crowdml.core import BadInput
    from crowdml.core.files import writable
    from crowdml.core.registry import nearest
    from crowdml.simulation.reporting.figures import AGAINST

    if csv:
        writable(csv)
    if against not in AGAINST:
        raise BadInput(f'"{against}" is no axis', where="--against", hint=nearest(against, AGAINST))


def _require_something_to_compare(tasks: Sequence[Path], vary: Sequence[str]) -> None:
    from crowdml.core import BadInput

    if len(tasks) == 1 and not vary:
        raise BadInput(
            "one task alone has nothing to be compared with",
            where="--vary",
            hint="give --vary algorithm.kind=fedavg,crowd-sgd, or more task files",
        )


def _require_epsilon(cells: Sequence[Cell]) -> None:
    from crowdml.core import BadInput

    if not any(any(cell.task.calibrated.scales.values()) for cell in cells):
        raise BadInput("no ε is known: none of the tasks adds noise", where="--against", hint="draw against samples")


def _compare_part(shard: str, cells: Sequence[Cell], request: dict[str, Any], on: str | None, resume: bool) -> None:
    """Run one part of a comparison, and keep it for `crowdml merge`."""
    from crowdml.studies.sweeps import side_by_side

    groups = [[cell.task for cell in group] for group in side_by_side(cells)]
    shards.run_shard(shard, groups, request, on=on, resume=resume)


def _run_cells(
    cells: Sequence[Cell],
    varied: Sequence[Variation],
    on: str | None,
    progress: output.Progress,
    options: dict[str, Any],
) -> tuple[Comparison, list[BadInput]]:
    """Run all cells; return what they found, and why some were refused."""
    from crowdml.simulation.cluster.hiring import hire
    from crowdml.studies.sweeps import run_cells

    refused: list[BadInput] = []
    with hire(on) as crew:
        found = run_cells(cells, varied, watch=progress.named, refused=refused.append, crew=crew, **options)
    return found, refused


def deliver(
    found: Comparison, trials: int, *, json: Path | None, plot: Path | None, csv: Path | None, against: str = "samples"
) -> None:
    """Print a comparison, and write what was asked for."""
    if json != Path("-"):
        print_comparison(found, trials)
    output.write_json(found.to_json(), json)
    if csv:
        from crowdml.core.files import write_whole

        write_whole(csv, found.to_pandas().to_csv(index=False).encode())
        output.say(f"table: {csv}")
    output.draw(lambda path: found.plot(path, against=against), plot)


def _row_file(data: Path | None, varied: Sequence[Variation], option: str) -> RowFile | None:
    """Return the file of rows for all cells; refuse one that takes the place of what is varied."""
    if data is None:
        return None
    from crowdml.data.rows.row_files import RowFile
    from crowdml.studies.sweeps import require_unvaried

    require_unvaried("data", data, varied, option)
    return RowFile(path=data, setting="--data")


def print_comparison(found: Comparison, trials: int) -> None:
    """Print a line per cell, then what casts doubt on them and what to know beside."""
    columns, rows = found.table()
    columns = [f"s.d. of {trials}" if name == "s.d." else name for name in columns]
    output.show(output.keep_words(output.table(None, columns, rows, right=columns[1:]), *range(1, len(columns))))
    output.show(*(f"warning: {warning}" for warning in found.warnings), style="bold yellow")
    told = {note for cell in found.cells for note in cell.notes}
    output.show(*(f"note: {note}" for note in found.notes if note not in told), style="dim")


def with_measures(changes: Sequence[str] | None, measure: str | None) -> list[str]:
    """Add the change that `--measure` stands for."""
    if measure is None:
        return list(changes or [])
    from crowdml.core import BadInput
    from crowdml.core.registry import nearest

    words = [word.strip() for word in measure.split(",")]
    for word in words:
        if word not in MEASURES:
            raise BadInput(
                f'"{word}" is nothing that can be measured', where="--measure", hint=nearest(word, [*MEASURES])
            )
    return [*(changes or []), "crowd.measure=[" + ", ".join(f'"{word}"' for word in words) + "]"]


def open_tracking(track: str | None, to: str | None, experiment: str) -> Tracker | None:
    """Open the store that `--track` names, before anything is simulated."""
    if track is None:
        if to is not None:
            from crowdml.core import BadInput

            raise BadInput("nothing is tracked", where="--track-to", hint="add --track mlflow, or --track tensorboard")
        return None
    from crowdml.studies.tracking import open_tracker

    return open_tracker(track, to, experiment)


def track_result(tracker: Tracker | None, label: str, result: Any) -> None:
    """Write a result to a tracker; what fails there does not take the result away, which was printed before."""
    if tracker is None:
        return
    try:
        tracker.write(label, result)
    except Exception as error:
        output.say(f"error: {tracker.place} did not take {label}: {error}")
        sys.exit(2)
    output.say(f"tracked: {label} in {tracker.place}")
