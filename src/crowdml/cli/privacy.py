"""crowdml privacy: what a task's terms mean, in plain words."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdml.cli import output
from crowdml.cli.command_groups import change_option, command_group

if TYPE_CHECKING:
    from crowdml.privacy import Figure
    from crowdml.privacy.odds import Odds
    from crowdml.task import Task
    from crowdml.task.explanation import Explanation
    from crowdml.task.owners import OwnerPromise

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
    plot: Annotated[
        Path | None, typer.Option(help="Draw the trade-off curve, and ε against releases (.png, .svg or .pdf).")
    ] = None,
) -> None:
    """Say what leaves a device, what is promised to whom, and what it adds up to: first in odds, then in ε.

    Odds say how often the best guess is right where a coin is right 50 times in 100: the plainest form of a promise.
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
    """Print what owners are told, in odds; then the same in figures: noise, ε, and what it adds up to."""
    output.show(f"{task.name}: {task.objective}".rstrip(": "), style="bold")
    print_owner_promise(found.owner)
    output.show("\nIn figures", style="bold")
    output.show(f"mode {found.mode}. {found.promise}\n")
    parts = [(part.name, part.size_bytes, part.protection) for part in found.message_parts]
    if parts:
        output.show(output.table("Parts of a check-in", ("part", "bytes", "protection"), parts, right=("bytes",)))
    if any(found.per_release.values()):
        _print_sums(found)
    if found.analysis:
        output.show(*found.analysis.lines())
    output.show(*(f"note: {note}" for note in found.notes), style="dim")


def print_owner_promise(told: OwnerPromise) -> None:
    """Print the promise in odds, what leaves a device, and who sees what."""
    from crowdml.task.owners.who_sees import AUDIENCES, FACTS

    output.show(told.in_odds)
    if dots := told.promised.dots:
        output.show(f"\n{dots.text()}\n{dots.legend()}")
    if not told.leaves:
        output.show("\nNothing leaves a device.")
        return
    leaves = [(part.what, part.size, part.plainly) for part in told.leaves_plainly]
    columns = ("what it is", "size", "what protects it")
    output.show(output.table(f"\nWhat leaves a device {told.when}", columns, leaves, right=("size",)))
    cells = {(sight.audience, sight.fact): sight.words for sight in told.sees}
    rows = [(who, *(cells[audience, fact] for fact in FACTS)) for audience, who in AUDIENCES.items()]
    output.show(output.table("\nWho sees what", ("", *FACTS.values()), rows), f"\n{told.trust}")
    if told.members:
        output.show(output.table("\nWithin your group", ("who", "sees"), told.members))


def _print_sums(found: Explanation) -> None:
    sums, odds = [], {"sample": found.owner.row, "device": found.owner.device}
    for unit in ("sample", "device"):
        one, total = found.per_release[unit], found.total[unit]
        best = total or one
        missing = {name: reasons.get(unit, "") for name, reasons in found.missing.items()}
        told = _told(one, missing["per_release"]), _told(total, missing["total"])
        sums.append((f"one {unit}", *told, best.by if best else "", _right(odds[unit].odds)))
    last = len(found.curve) - 1
    points = [found.curve[at] for at in sorted({0, last // 4, last // 2, 3 * last // 4, last})]
    written = output.epsilon_text
    curve = [(count, written(enforced), written(valid.epsilon), valid.by) for count, enforced, valid in points]
    columns = ("releases", f"enforced: {found.enforced_by}", "smallest valid", "by")
    output.show(
        output.table(
            "\nWhat it adds up to", ("for", "one release", "the whole task", "proven by", "right of 100"), sums
        ),
        output.table("\nε of the promised unit after so many releases", columns, curve, right=columns[:3]),
    )


def _right(odds: Odds | None) -> str:
    """Write odds to one place, rounded up."""
    return f"{math.ceil(odds.success * 1000) / 10:g}" if odds else ""


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
    """Draw the trade-off curve of the promised unit, and beside it ε against releases."""
    from crowdml.core import BadInput
    from crowdml.core.files import save_figure

    if not found.curve:
        raise BadInput("there is no ε to draw", where="privacy.mode", hint='only mode = "sound" proves one')
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    curve, course = figure.subplots(1, 2)
    _draw_trade_off(task, found, curve)
    _draw_course(task, found, course)
    delta = f", δ = {task.privacy.delta:g}" if task.privacy.delta else ""
    figure.suptitle(f"{task.name}: ε = {task.privacy.epsilon:g}{delta} for one {task.privacy.unit}")
    save_figure(figure, path)


def _draw_trade_off(task: Task, found: Explanation, axes: Any) -> None:
    """Draw which two errors a guess can have; the point is the best guess where both data sets are equally likely."""
    import numpy as np

    from crowdml.privacy.trade_off import trade_off

    plan, first = task.calibrated, np.concatenate([np.geomspace(1e-4, 0.02, 40), np.linspace(0.02, 1.0, 160)])
    releases = min(plan.terms.releases, task.stop.max_releases or plan.terms.releases)
    cost, odds = plan.cost(releases, plan.terms.changing), found.owner.promised.odds
    if cost is None or odds is None:
        return
    axes.plot([0, 1], [1, 0], ":", color="grey", label="a coin")
    axes.plot(first, trade_off(cost, first), label="no method lies below")
    wrong = 1 - odds.success
    axes.plot([wrong], [wrong], "o", label=f"best guess: right {odds.of_100} times in 100 at most")
    axes.set(xlabel="wrong where the first is true", ylabel="wrong where the second is true", xlim=(0, 1), ylim=(0, 1))
    axes.set(title="Which errors a guess can have", aspect="equal")
    axes.legend(loc="upper right", fontsize="small", framealpha=1)


def _draw_course(task: Task, found: Explanation, axes: Any) -> None:
    """Draw ε against releases, as it is enforced and as it is known to be."""
    from matplotlib.ticker import MaxNLocator

    counts = [count for count, _, _ in found.curve]
    proofs = " or ".join(dict.fromkeys(valid.by for _, _, valid in found.curve))
    marker = "o" if len(counts) <= 12 else ""
    axes.axhline(task.privacy.epsilon or 0.0, color="grey", linewidth=0.8, label="promised")
    enforced = [epsilon for _, epsilon, _ in found.curve]
    axes.plot(counts, enforced, marker=marker, markersize=4, label=f"enforced: {found.enforced_by}")
    axes.plot(counts, [valid.epsilon for _, _, valid in found.curve], "--", label=f"smallest valid: {proofs}")
    axes.set(xlabel=f"releases with one {task.privacy.unit}", ylabel="ε", ylim=(0, None))
    axes.set(title="What releases add up to")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right", fontsize="small")
