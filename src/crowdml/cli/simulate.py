"""crowdml simulate: run a task file on a simulated crowd, and say what it learnt and what it cost.

crowdml import-legacy: make such a file of the original Crowd-ML library's configuration.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import change_option
from crowdml.simulation.workers import start

if TYPE_CHECKING:
    from crowdml.core import Target
    from crowdml.simulation import Result

MOST_WEIGHTS = 20
"""Devices whose weight is printed; a file has them all."""


def simulate(
    task: Annotated[Path, typer.Argument(help="The task file, such as examples/digits.toml.")],
    set_: Annotated[list[str] | None, change_option("algorithm.batch=10")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows of your own: a .csv, .npz or .parquet file.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Repetitions, each with its own order, delays and noise.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve here (.png, .svg or .pdf).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run stopped.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="auto|compiled|numpy",
            help="What runs it; auto: NumPy where compiling would take longer than running.",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Run step by step without compiling: slow, but errors name their stage.")
    ] = False,
) -> None:
    """Simulate a crowd that learns a task.

    Prints the test error with its spread over trials, and what the privacy terms really add up to.
    """
    output.check_paths(json, plot)
    if debug and engine is not None:
        from crowdml.core import BadInput

        raise BadInput("--debug goes step by step, in bytes", where="--engine", hint="leave one of the two out")
    if not debug and (engine or os.environ.get("CROWDML_ENGINE")) != "numpy":
        start.start_early()
    from crowdml.task.task_file import load, located

    changes = set_ or []
    loaded = load(task, changes)
    with located(task, changes), output.Progress(loaded.name, quiet=json == Path("-")) as progress:
        from crowdml.data.rows.row_files import RowFile
        from crowdml.simulation import simulate as compiled
        from crowdml.simulation.baselines import public_baselines
        from crowdml.simulation.stepwise import simulate_stepwise

        run = simulate_stepwise if debug else functools.partial(compiled, engine=engine)
        file = None if data is None else RowFile(path=data, setting="--data")
        result = run(loaded, trials=trials, seed=seed, resume=resume, watch=progress.update, data=file)
    baselines = result.baselines | public_baselines(result.task, trials=trials, seed=seed, simulate=compiled)
    result = replace(result, baselines=baselines)
    if json != Path("-"):
        print_result(result)
    output.write_json(result.to_json(), json)
    output.draw(result.plot, plot)


def _measure(name: str, target: Target) -> str:
    """Say what was measured; absolute errors of a number are in its unit."""
    words = name.replace("_", " ")
    if target.has_accuracy:
        return words
    if name.endswith("error"):
        return f"{words}, share of the range"
    unit = getattr(target, "unit", "")
    return f"{words} in {unit}" if unit and name.endswith(("mae", "rmse")) else words


def print_result(result: Result) -> None:
    """Print what was learnt, what it cost in privacy, and how long it took."""
    target, rows = result.task.target, []
    figures = result.to_json()["final"].items()
    final = {name: [math.nan if value is None else value for value in pair.values()] for name, pair in figures}
    for name in (name for name in ("test_error", "validation_error") if name in final and target.has_accuracy):
        mean, spread = final[name]
        cells = (name.replace("_error", " accuracy"), f"{1 - mean:.4f}", f"{spread:.4f}")
        rows.append(tuple(f"[bold]{cell}[/bold]" for cell in cells) if name == "test_error" else cells)
    for name, (mean, spread) in sorted(final.items(), key=lambda item: item[0] != "test_error"):
        rows.append((_measure(name, target), f"{mean:.4f}", f"{spread:.4f}"))
    for name, errors in result.baselines.items():
        spread = errors.std(ddof=1) if len(errors) > 1 else 0.0
        what, mean = ("accuracy", 1 - errors.mean()) if target.has_accuracy else ("error", errors.mean())
        rows.append((f"beside it: {name}, test {what}", f"{mean:.4f}", f"{spread:.4f}"))
    columns = ("measure", "mean", f"s.d. of {result.trials} trial{'s' * (result.trials > 1)}")
    title = f"{result.task.name}: {result.task.objective}".rstrip(": ")
    output.show(output.table(title, columns, rows, right=columns[1:]))
    output.show(*average_lines(result), *privacy_lines(result.privacy))
    seconds = f"{result.run_seconds:.2f} s, after {result.compile_seconds:.1f} s of compiling"
    output.show(f"{result.updates} updates in {seconds}", style="dim")
    output.show(*(f"warning: {warning}" for warning in result.warnings), style="bold yellow")
    output.show(*(f"note: {note}" for note in result.notes), style="dim")


def average_lines(result: Result) -> list[str]:
    """Say how often weights were used, and what devices counted in the last version of the first trial."""
    if not result.averages:
        return []
    first, used = result.averages[0], sum(trial.used for trial in result.averages)
    weights = sorted((line["device"], sum(line["weights"]) / len(line["weights"])) for line in first.to_json()["last"])
    shown = ", ".join(f"{device}: {weight:.3f}" for device, weight in weights[:MOST_WEIGHTS])
    more = f" and {len(weights) - MOST_WEIGHTS} more" if len(weights) > MOST_WEIGHTS else ""
    return [
        f"averaging: weights of their own in {used} of {sum(trial.versions for trial in result.averages)} versions",
        f"  at last, by device           {shown}{more}",
    ]


def privacy_lines(privacy: dict[str, Any]) -> list[str]:
    """Say in words what the terms add up to."""
    if privacy["sample"] is None:
        return [f"privacy: mode {privacy['mode']}, {privacy['guarantee']}"]
    lines = [f"privacy: mode {privacy['mode']}"]
    if "promised" in privacy:
        promised = privacy["promised"]
        lines.append(
            f"  the terms would promise      {_told(promised)} in all, for one {privacy['unit']} in "
            f"{promised['uses']} releases; enforced by {privacy['enforced_by']}"
        )
    if privacy["paper_claim"]:
        lines.append(f"  the paper would claim        {_told(privacy['paper_claim'])}")
    lines.append(f"  what it really adds up to    {_told(privacy['sample'])} for one sample")
    device = privacy["device"]
    told = _told(device) if device else "nothing that is worth a figure"
    lines.append(f"                               {told} for one device")
    by, by_device = privacy["sample"]["by"], (device or privacy["sample"])["by"]
    proofs = by if by == by_device else f"{by} for one sample, {by_device} for one device"
    lines.append(f"  proven by                    {proofs}")
    for group in privacy.get("owners", ()):
        lines.append(
            f"  {group['devices']} owners have chosen ε = {group['epsilon']:g}: {_told(group['sample'])} for one "
            f"sample, {_told(group['device'])} for one device, noise {group['noise']:g} levels"
        )
    lines.append(f"  noise: {privacy['noise']}")
    return lines


def _told(promise: dict[str, Any]) -> str:
    return output.promise_text(promise["epsilon"], promise["delta"])


def import_legacy(
    configuration: Annotated[Path, typer.Argument(help="The configuration.json of the Crowd-ML library (2016).")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="TASK.toml", help="Write here, not to standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there already.")] = False,
    dataset: Annotated[
        str | None, typer.Option(help="Simulate with this dataset; otherwise one whose rows fit is taken.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Devices of the simulated crowd, at most.")] = 20,
) -> None:
    """Translate a configuration of the original Crowd-ML library into a task file.

    The task file says in comments what each line comes from, and what could not be carried over. Noise was given by
    its scale alone there, so no ε can be stated for it.
    """
    from crowdml.core import BadInput
    from crowdml.core.files import read_text, writable, write_whole
    from crowdml.task.legacy import translate

    if out is not None:
        writable(out)
        if out.exists() and not force:
            raise BadInput(f"{out} is there already", where="--out", hint="choose another name, or add --force")
    source = read_text(configuration, "give the path of a configuration.json")
    text = translate(source, configuration.name, dataset, devices)
    if out is None:
        sys.stdout.write(text)
        return
    write_whole(out, text.encode())
    output.say(f"task file: {out}\n  try: crowdml simulate {out} --trials 1")
