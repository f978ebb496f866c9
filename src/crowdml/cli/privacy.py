"""crowdml privacy: what a task's terms mean, in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdml.cli.words import Commands

if TYPE_CHECKING:
    from crowdml.algorithms import Task
    from crowdml.algorithms.explanation import Explanation
    from crowdml.privacy.reporting import Figure

app = typer.Typer(
    cls=Commands,
    name="privacy",
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Say what the privacy terms of a task mean.",
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
    for name in ("for", "one release", "the whole task", "proven by"):
        table.add_column(name)
    for unit in ("sample", "device"):
        one, total = found.per_release[unit], found.total[unit]
        best = total or one
        missing = {name: reasons.get(unit, "") for name, reasons in found.missing.items()}
        told = _told(one, missing["per_release"]), _told(total, missing["total"])
        table.add_row(f"one {unit}", *told, best.by if best else "")
    console = Console()
    console.print(table)
    rows = Table(title="\nε of the promised unit after so many releases", title_justify="left", box=None)
    for name, right in (("releases", 1), (f"enforced: {found.enforced_by}", 1), ("smallest valid", 1), ("by", 0)):
        rows.add_column(name, justify="right" if right else "left")
    last = len(found.curve) - 1
    for at in sorted({0, last // 4, last // 2, 3 * last // 4, last}):
        count, enforced, valid = found.curve[at]
        rows.add_row(str(count), f"{enforced:.4g}", f"{valid.epsilon:.4g}", valid.by)
    console.print(rows)


def _print_target(task: Task, target: Task) -> None:
    now, then = _noise(task), _noise(target)
    if not then:
        return
    unit = " levels" if target.privacy.mode == "sound" else ""
    change = f", {then / now:.3g} times what the task adds now" if now else ""
    whole = "a total ε" if target.privacy.mode == "sound" else "an ε of each release"
    print(f"\n{whole} of {target.privacy.epsilon:g} takes noise of scale {then:g}{unit}{change}")


def _noise(task: Task) -> float:
    from crowdml.core import NUMPY

    return task.plan(task.model_for(NUMPY)).noise


def _told(figure: Figure | None, missing: str) -> str:
    if figure is None:
        return missing
    delta = f", δ = {figure.delta:g}" if figure.delta else ""
    return f"ε = {figure.epsilon:.4g}{delta}"


def _draw(task: Task, found: Explanation, path: Path) -> None:
    from crowdml.core import BadInput

    if not found.curve:
        raise BadInput("there is no ε to draw", where="privacy.mode", hint='only mode = "sound" proves one')
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    counts = [count for count, _, _ in found.curve]
    proofs = " or ".join(dict.fromkeys(valid.by for _, _, valid in found.curve))
    marker = "o" if len(counts) <= 12 else ""
    axes.axhline(task.privacy.epsilon or 0.0, color="grey", linewidth=0.8, label="promised")
    axes.plot(
        counts, [own for _, own, _ in found.curve], marker=marker, markersize=4, label=f"enforced: {found.enforced_by}"
    )
    axes.plot(counts, [own.epsilon for _, _, own in found.curve], "--", label=f"smallest valid: {proofs}")
    delta = f", δ = {task.privacy.delta:g}" if task.privacy.delta else ""
    axes.set(xlabel=f"releases with one {task.privacy.unit}", ylabel="ε", title=task.name + delta, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right")
    figure.savefig(path)
    pyplot.close(figure)
