"""crowdml privacy: what a task's terms mean, in plain words."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import change_option, command_group

if TYPE_CHECKING:
    from crowdml.privacy import Figure
    from crowdml.task import Task
    from crowdml.task.explanation import Explanation

app = command_group("Say what the privacy terms of a task mean: its privacy budget, and what spends it.")


@app.callback()
def _commands() -> None:
    """Say what the privacy terms of a task mean: its privacy budget, and what spends it."""


@app.command()
def explain(
    task: Annotated[Path, typer.Argument(help="The task file.")],
    set_: Annotated[list[str] | None, change_option("privacy.epsilon=1.0")] = None,
    target_epsilon: Annotated[
        float | None, typer.Option(help="Also say how much noise this total ε would take.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the explanation here ('-': standard output).")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw ε against releases here (.png, .svg or .pdf).")] = None,
) -> None:
    """Say what leaves a device, what is promised to whom, and what it adds up to.

    The privacy budget is the total (ε, δ) that a task promises to each sample, or to each device; every release spends
    a part of it. Shown are the noise and bound of every part of a message, what one release costs, what all of them add
    up to, and what the promise rests on: this device alone, or secure aggregation and other devices too.
    """
    from crowdml.task.explanation import explain as run
    from crowdml.task.task_file import load

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
        content["target"] = {"epsilon": target_epsilon, "noise": target.calibrated.noise}
    output.write_json(content, json)
    output.draw(functools.partial(_draw, loaded, found), plot)


def print_explanation(task: Task, found: Explanation) -> None:
    """Print what leaves a device, what is promised, and what it adds up to."""
    output.show(f"{task.name}: {task.objective}".rstrip(": "), style="bold")
    output.show(f"mode {found.mode}. {found.promise}\n")
    parts = [(part.name, part.what, part.size_bytes, part.protection) for part in found.message_parts]
    columns = ("part", "what it is", "bytes", "protection")
    table = output.table("What leaves a device with every check-in", columns, parts, right=("bytes",))
    output.show(table if parts else "Nothing leaves a device.")
    if any(found.per_release.values()):
        _print_sums(found)
    output.show(*(f"note: {note}" for note in found.notes), style="dim")


def _print_sums(found: Explanation) -> None:
    sums = []
    for unit in ("sample", "device"):
        one, total = found.per_release[unit], found.total[unit]
        best = total or one
        missing = {name: reasons.get(unit, "") for name, reasons in found.missing.items()}
        told = _told(one, missing["per_release"]), _told(total, missing["total"])
        sums.append((f"one {unit}", *told, best.by if best else ""))
    last = len(found.curve) - 1
    points = [found.curve[at] for at in sorted({0, last // 4, last // 2, 3 * last // 4, last})]
    curve = [(count, f"{enforced:.4g}", f"{valid.epsilon:.4g}", valid.by) for count, enforced, valid in points]
    columns = ("releases", f"enforced: {found.enforced_by}", "smallest valid", "by")
    output.show(
        output.table("\nWhat it adds up to", ("for", "one release", "the whole task", "proven by"), sums),
        output.table("\nε of the promised unit after so many releases", columns, curve, right=columns[:3]),
    )


def _print_target(task: Task, target: Task) -> None:
    now, then = task.calibrated.noise, target.calibrated.noise
    if not then:
        return
    total = target.calibrated.terms.promised
    unit = " levels" if total else ""
    change = f", {then / now:.3g} times what the task adds now" if now else ""
    whole = "a total ε" if total else "an ε of each release"
    print(f"\n{whole} of {target.privacy.epsilon:g} takes noise of scale {then:g}{unit}{change}")


def _told(figure: Figure | None, missing: str) -> str:
    return output.promise_text(figure.epsilon, figure.delta) if figure else missing


def _draw(task: Task, found: Explanation, path: Path) -> None:
    from crowdml.core import BadInput
    from crowdml.core.files import save_figure

    if not found.curve:
        raise BadInput("there is no ε to draw", where="privacy.mode", hint='only mode = "sound" proves one')
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    counts = [count for count, _, _ in found.curve]
    proofs = " or ".join(dict.fromkeys(valid.by for _, _, valid in found.curve))
    marker = "o" if len(counts) <= 12 else ""
    axes.axhline(task.privacy.epsilon or 0.0, color="grey", linewidth=0.8, label="promised")
    enforced = [epsilon for _, epsilon, _ in found.curve]
    axes.plot(counts, enforced, marker=marker, markersize=4, label=f"enforced: {found.enforced_by}")
    axes.plot(counts, [valid.epsilon for _, _, valid in found.curve], "--", label=f"smallest valid: {proofs}")
    delta = f", δ = {task.privacy.delta:g}" if task.privacy.delta else ""
    axes.set(xlabel=f"releases with one {task.privacy.unit}", ylabel="ε", title=task.name + delta, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right")
    save_figure(figure, path)
