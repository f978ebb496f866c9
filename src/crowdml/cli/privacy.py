"""crowdml privacy: what a task's terms mean, in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crowdml.algorithms import Task
    from crowdml.algorithms.explanation import Explanation
    from crowdml.privacy import Promise

app = typer.Typer(
    name="privacy", rich_markup_mode=None, no_args_is_help=True, help="Say what the privacy terms of a task mean."
)


@app.callback()
def _commands() -> None:
    """Say what the privacy terms of a task mean."""


@app.command()
def explain(
    task: Annotated[Path, typer.Argument(help="The task file.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the file, such as privacy.epsilon=1.0."),
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option(help="Also say how much noise this total ε would take.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the explanation here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw ε against releases here (.png, .svg or .pdf).")] = None,
) -> None:
    """Say what leaves a device, what is promised to whom, and what it adds up to."""
    from crowdml.algorithms.explanation import explain as run
    from crowdml.algorithms.task_file import load
    from crowdml.cli import output

    output.check_paths(json, plot)
    changes = set_ or []
    loaded = load(task, changes)
    found = run(loaded)
    target = None
    if target_epsilon is not None:
        target = load(task, [*changes, f"privacy.epsilon={target_epsilon}"])
    if json != Path("-"):
        print_explanation(loaded, found)
        if target is not None:
            _print_target(loaded, target)
    content = found.to_json() | {"task": loaded.name}
    if target is not None:
        content["target"] = {"epsilon": target_epsilon, "noise": _noise(target)}
    output.write_json(content, json)
    if plot:
        _draw(loaded, found, plot)
        output.say(f"figure: {plot}")


def print_explanation(task: Task, found: Explanation) -> None:
    """Print what leaves a device, what is promised, and what it adds up to."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{task.name}: {task.objective}".rstrip(": "), style="bold", highlight=False)
    console.print(f"mode {found.mode}. {found.promise}\n", highlight=False)
    table = Table(title="What leaves a device with every check-in", title_justify="left", box=None)
    for name, right in (("part", 0), ("what it is", 0), ("bytes", 1), ("protection", 0)):
        table.add_column(name, justify="right" if right else "left")
    for own in found.leaving:
        table.add_row(own.name, own.what, str(own.size_bytes), own.protection)
    console.print(table if found.leaving else "Nothing leaves a device.")
    if any(found.per_release.values()):
        _print_sums(found)
    for note in found.notes:
        console.print(f"note: {note}", style="dim", highlight=False)


def _print_sums(found: Explanation) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="\nWhat it adds up to", title_justify="left", box=None)
    for name in ("for", "one release", "the whole task"):
        table.add_column(name)
    for unit in ("sample", "device"):
        table.add_row(f"one {unit}", _told(found.per_release[unit]), _told(found.total[unit]))
    console = Console()
    console.print(table)
    rows = Table(title="\nε of the promised unit after so many releases", title_justify="left", box=None)
    for name in ("releases", "enforced", "smallest valid"):
        rows.add_column(name, justify="right")
    last = len(found.curve) - 1
    for at in sorted({0, last // 4, last // 2, 3 * last // 4, last}):
        count, enforced, best = found.curve[at]
        rows.add_row(str(count), f"{enforced:.4g}", f"{best:.4g}")
    console.print(rows)


def _print_target(task: Task, target: Task) -> None:
    now, then = _noise(task), _noise(target)
    if now and then:
        print(f"\na total ε of {target.privacy.epsilon:g} takes {then / now:.3g} times the noise")


def _noise(task: Task) -> float:
    from crowdml.core import NUMPY

    return task.plan(task.model_for(NUMPY)).noise


def _told(promise: Promise | None) -> str:
    if promise is None:
        return "not limited"
    delta = f", δ = {promise.delta:g}" if promise.delta else ""
    return f"ε = {promise.epsilon:.4g}{delta}"


def _draw(task: Task, found: Explanation, path: Path) -> None:
    from crowdml.core import BadInput

    if not found.curve:
        raise BadInput("there is no ε to draw", where="privacy.mode", hint='only mode = "sound" proves one')
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    counts = [count for count, _, _ in found.curve]
    axes.plot(counts, [enforced for _, enforced, _ in found.curve], label="enforced")
    axes.plot(counts, [best for _, _, best in found.curve], "--", label="smallest valid")
    axes.axhline(task.privacy.epsilon or 0.0, color="grey", linewidth=0.8, label="promised")
    axes.set(xlabel=f"releases with one {task.privacy.unit}", ylabel="ε", title=task.name, ylim=(0, None))
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
