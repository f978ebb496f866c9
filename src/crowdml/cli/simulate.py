"""crowdml simulate: run a task file on a simulated crowd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crowdml.simulation import Result


def simulate(
    task: Annotated[Path, typer.Argument(help="The task file, such as examples/digits.toml.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the file, such as algorithm.batch=10."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Repetitions, each with its own order, delays and noise.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Same seed, same machine: same result.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve here (.png, .svg or .pdf).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run stopped.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Run step by step without compiling: slow, but errors name their stage.")
    ] = False,
) -> None:
    """Simulate a crowd that learns a task.

    Prints the test error with its spread over trials, and what the privacy terms really add up to.
    """
    from crowdml.algorithms.task_file import load, located
    from crowdml.cli import output

    output.check_paths(json, plot)
    changes = set_ or []
    loaded = load(task, changes)
    with located(task, changes), output.Progress(loaded.name, quiet=json == Path("-")) as progress:
        if debug:
            from crowdml.simulation.debug import simulate_stepwise as run
        else:
            from crowdml.simulation import simulate as run
        from crowdml.simulation.beside import beside

        result = run(loaded, trials=trials, seed=seed, resume=resume, watch=progress.update)
    deliver(replace(result, beside=result.beside | beside(loaded, trials=trials, seed=seed)), json, plot)


def deliver(result: Result, json: Path | None, plot: Path | None) -> None:
    """Print the result, and write what was asked for."""
    from crowdml.cli import output

    if json != Path("-"):
        output.print_result(result)
    output.write_json(result.to_json(), json)
    if plot:
        result.plot(plot)
        output.say(f"figure: {plot}")
