"""crowdml simulate: run a task file on a simulated crowd, and say what it learnt and what it cost.

crowdml import-legacy: make such a file of the original Crowd-ML library's configuration.
crowdml cache: what simulations keep to start sooner, and how to take it away.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from dataclasses import replace
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdml.cli import compare, output
from crowdml.cli.command_groups import change_option, command_group
from crowdml.cli.parts import shards
from crowdml.simulation.workers import start

if TYPE_CHECKING:
    from crowdml.core import Target
    from crowdml.simulation import Result
    from crowdml.task import Task

_WHOLE = "parts are of a task that a file says whole", "leave it out; rows of your own: --set data.file=ROWS.csv"

MOST_WEIGHTS = 20
"""Devices whose weight is printed; a file has them all."""


def simulate(
    task: Annotated[Path, typer.Argument(help="The task file, such as examples/digits.toml.")],
    set_: Annotated[list[str] | None, change_option("algorithm.batch=10")] = None,
    data: Annotated[Path | None, compare.data_option()] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,...", help="Run with each of these values of a key: see crowdml compare."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Repetitions, each with its own order, delays and noise.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve here (.png, .svg or .pdf).")] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the first trial's model here (.onnx or .safetensors).")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Keep everything here, for crowdml.Result.load in Python.")] = None,
    measure: Annotated[str | None, compare.measure_option()] = None,
    track: Annotated[str | None, compare.track_option()] = None,
    track_to: Annotated[str | None, compare.track_to_option()] = None,
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
    on: Annotated[str | None, compare.on_option()] = None,
    shard: Annotated[str | None, shards.shard_option()] = None,
) -> None:
    """Simulate a crowd that learns a task.

    Prints the test error with its spread over trials, and what the privacy terms really add up to.
    """
    changes = compare.with_measures(set_, measure)
    if shard:
        shards.refuse_outputs({"--json": json, "--plot": plot, "--export": export, "--save": save, "--track": track})
        _refuse({"--debug": debug, "--data": data}, *_WHOLE)
    if sweep:
        unused = {"--debug": debug, "--export": export, "--save": save}
        _refuse(unused, "a sweep has many results", "leave it out, or --sweep")
        files: dict[str, Any] = {"data": data, "plot": plot, "json": json, "tracking": (track, track_to)}
        how: dict[str, Any] = {"engine": engine, "resume": resume, "on": on, "shard": shard}
        compare.compare_all([task], sweep, changes, option="--sweep", trials=trials, seed=seed, **files, **how)
        return
    output.check_paths(json, plot)
    _check_model_paths(export, save)
    _warm_up(debug, engine, on)
    from crowdml.task.task_file import load, located

    loaded = load(task, changes)
    if shard:
        request = shards.task_request(loaded, trials=trials, seed=seed, engine=engine)
        with located(task, changes):
            shards.run_shard(shard, [[loaded]], request, on=on, resume=resume)
        return
    tracker = compare.open_tracking(track, track_to, loaded.name)
    with located(task, changes), output.Progress(loaded.name, quiet=json == Path("-")) as progress:
        result = _run(loaded, data, debug, engine, on, trials=trials, seed=seed, resume=resume, watch=progress.update)
    result = with_public_baselines(result)
    deliver(result, json=json, plot=plot, save=save, export=export)
    compare.track_result(tracker, loaded.name, result)


def _warm_up(debug: bool, engine: str | None, on: str | None) -> None:
    """Start workers while the task is read, where it will be compiled; refuse to do so and to go step by step."""
    if debug:
        _refuse({"--engine": engine, "--on": on}, "--debug goes step by step, in bytes", "leave one of the two out")
    elif on is None and (engine or os.environ.get("CROWDML_ENGINE")) != "numpy":
        start.start_early()


def deliver(
    result: Result, *, json: Path | None, plot: Path | None, save: Path | None, export: Path | None = None
) -> None:
    """Print a result, and write what was asked for."""
    if json != Path("-"):
        print_result(result)
    output.write_json(result.to_json(), json)
    output.draw(result.plot, plot)
    _keep_model(result, export, save)


def _run(task: Task, data: Path | None, debug: bool, engine: str | None, on: str | None, **options: Any) -> Result:
    """Simulate a task, compiled or step by step."""
    from crowdml.data.rows.row_files import RowFile
    from crowdml.simulation import simulate as compiled
    from crowdml.simulation.stepwise import simulate_stepwise

    run = simulate_stepwise if debug else functools.partial(compiled, engine=engine, on=on)
    file = None if data is None else RowFile(path=data, setting="--data")
    return run(task, data=file, **options)


def with_public_baselines(result: Result) -> Result:
    """Add what public rows alone would reach, where a task has some."""
    from crowdml.simulation import simulate as compiled
    from crowdml.simulation.baselines import public_baselines

    found = public_baselines(result.task, trials=result.trials, seed=result.seed, simulate=compiled)
    return replace(result, baselines=result.baselines | found)


def _keep_model(result: Result, export: Path | None, save: Path | None) -> None:
    """Write result and model where they were asked for."""
    if save:
        result.save(save)
        output.say(f"kept: {save}")
    if export:
        result.model.save(export)
        output.say(f"model: {export}")


def _refuse(given: dict[str, Any], what: str, hint: str) -> None:
    """Refuse the first option that was given."""
    from crowdml.core import BadInput

    for name in (name for name, value in given.items() if value):
        raise BadInput(what, where=name, hint=hint)


def _check_model_paths(export: Path | None, save: Path | None) -> None:
    """Refuse files that could not be written, before any work is done."""
    from crowdml.core.files import writable

    for path in filter(None, (export, save)):
        writable(path)
    if export:
        import importlib.util

        from crowdml.core import BadInput
        from crowdml.core.errors import install
        from crowdml.task.model_files import require_model_kind

        require_model_kind(export)
        if export.suffix == ".onnx" and importlib.util.find_spec("onnx") is None:
            raise BadInput("ONNX cannot be written here", where="--export", hint=install("onnx"))


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
    target, rows = result.task.target, list[tuple[object, ...]]()
    figures = result.to_json()["final"].items()
    final = {name: [math.nan if value is None else value for value in pair.values()] for name, pair in figures}
    for name in (name for name in ("test_error", "validation_error") if name in final and target.has_accuracy):
        mean, spread = final[name]
        cells = (name.replace("_error", " accuracy"), f"{1 - mean:.4f}", f"{spread:.4f}")
        rows.append(tuple(map(output.strong, cells)) if name == "test_error" else cells)
    for name, (mean, spread) in sorted(final.items(), key=lambda item: item[0] != "test_error"):
        rows.append((_measure(name, target), f"{mean:.4f}", f"{spread:.4f}"))
    for name, errors in result.baselines.items():
        spread = errors.std(ddof=1) if len(errors) > 1 else 0.0
        what, mean = ("accuracy", 1 - errors.mean()) if target.has_accuracy else ("error", errors.mean())
        rows.append((f"beside it: {name}, test {what}", f"{mean:.4f}", f"{spread:.4f}"))
    columns = ("measure", "mean", f"s.d. of {result.trials} trial{'s' * (result.trials > 1)}")
    title = f"{result.task.name}: {result.task.objective}".rstrip(": ")
    output.show(output.table(title, columns, rows, right=columns[1:]))
    output.show(*average_lines(result), *privacy_lines(result.privacy), *analysis_lines(result.task))
    # Short runs, and those whose program is kept from before, compile nothing.
    compiled = f", after {result.compile_seconds:.1f} s of compiling" if result.compile_seconds >= 0.05 else ""
    output.show(f"{result.updates} updates in {result.run_seconds:.2f} s{compiled}", style="dim")
    output.show(*(f"warning: {warning}" for warning in result.warnings), style="bold yellow")
    output.show(*(f"note: {note}" for note in result.notes), style="dim")


def analysis_lines(task: Task) -> tuple[str, ...]:
    """Say what the batch size means for noise, delays and traffic, where devices check in as rows come."""
    from crowdml.task.explanation import analyse_updates

    found = analyse_updates(task)
    return found.lines() if found else ()


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


cache = command_group("Show or clear compiled programs and checkpoints that simulations keep.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")]


@cache.command("show")
def cache_show(as_json: AsJson = False) -> None:
    """Say where compiled programs and checkpoints are kept, how many, and how large they are.

    Compiled programs let the next simulation start sooner. They are made for this processor and these versions, take
    512 MiB at most, and the longest unused make room for new ones. $CROWDML_PROGRAMS names another folder, or "off".
    """
    from crowdml.core.files import cache_home
    from crowdml.simulation.engine.program_cache import MOST_BYTES, ProgramCache, find_cache

    home = find_cache()
    programs = home if isinstance(home, ProgramCache) else None
    entries = programs.entries() if programs else []
    runs = [path for path in (cache_home() / "runs").glob("*.safetensors") if path.is_file()]
    found: dict[str, dict[str, Any]] = {
        "programs": {
            "folder": str(programs.folder) if programs else None,
            "entries": len(entries),
            "bytes": sum(size for _, size, _ in entries),
            "most_bytes": MOST_BYTES,
        },
        "checkpoints": {
            "folder": str(cache_home() / "runs"),
            "entries": len(runs),
            "bytes": sum(path.stat().st_size for path in runs),
        },
    }
    if as_json:
        typer.echo(json_text(found, indent=2))
        return
    rows = [
        (name, str(kept["entries"]), _size(kept["bytes"]), kept["folder"] or str(home)) for name, kept in found.items()
    ]
    output.show(output.table("", ("kept", "entries", "size", "folder"), rows, right=("entries", "size")))


@cache.command("clear")
def cache_clear(as_json: AsJson = False) -> None:
    """Take all compiled programs away; the next simulation compiles anew. Checkpoints of interrupted runs stay."""
    from crowdml.simulation.engine.program_cache import open_cache

    programs = open_cache()
    count, size = programs.clear() if programs else (0, 0)
    if as_json:
        typer.echo(json_text({"entries": count, "bytes": size}))
    else:
        output.say(f"{count} compiled {'program' if count == 1 else 'programs'} taken away, {_size(size)}")


def _size(count: int) -> str:
    """Say bytes in the unit people would.

    >>> _size(999), _size(3_500_000)
    ('999 B', '3.3 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
