"""What `crowdml device` prints and asks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdml.cli import output

if TYPE_CHECKING:
    from rich.table import Table

    from crowdml.core import Target
    from crowdml.device.device import Device, Summary
    from crowdml.device.joining import Offer
    from crowdml.device.personal_model import HeldOut, Personal
    from crowdml.device.rows.sample_numbers import RowsChanged
    from crowdml.device.sending import Outcome

WAITS = {"paused": "paused by its operator", "draft": "not open yet"}
SAYS = {
    "open": "open",
    "paused": "paused by its operator (this device waits)",
    "draft": "not open yet (this device waits)",
    "stopped": "ended (nothing more is sent)",
}
"""What the state of a task means for a device."""
NO_CAP = "no cap is set: nothing limits what all tasks of this device add up to"
NO_GUARANTEE = "This task gives NO formal guarantee: what it sends may reveal your rows. Take part nevertheless?"


def show(offer: Offer) -> None:
    """Say what an invite offers, before the owner decides."""
    from crowdml.cli.privacy import print_explanation

    print_explanation(offer.live.task, offer.explain())
    if offer.state in WAITS:
        print(f"\nThe task is {WAITS[offer.state]}: you can join, and this device then waits and sends nothing.")
    print(f"\na row        {offer.live.task.data.row_in_words}")
    print(f"predicts     {offer.live.task.target.described}")
    print(f"server       {offer.link.server}")
    print(f"operator     {offer.link.key}")
    print(f"signed task  {offer.signed.hash}")


def print_cap_advice(offer: Offer, place: Path, given: tuple[float | None, float | None], again: str) -> None:
    """Say that no cap limits all tasks together, where that is so, and which would be sensible."""
    from crowdml.device.device_home import Home, suggested_cap, terms_of
    from crowdml.privacy import Promise

    home = Home(place) if (place / "tasks").is_dir() else None
    if given[0] is not None or (home and home.owner().epsilon is not None):
        return
    before = Promise(epsilon=0.0)
    if home:
        with home.ledger() as ledger:
            before = ledger.chain.reserved()
    cap = suggested_cap(terms_of(offer.live), before)
    print(f"\n{NO_CAP}")
    if cap is None:
        another = "a task of this device has no ε, so any cap would refuse this one"
        print(f"  {another if offer.guarantee else 'this task has no ε, so any cap would refuse it'}")
    else:
        print(f"  suggested: crowdml device cap --epsilon {cap.epsilon:g} --delta {cap.delta:g}{again}")
        print(f"  or right now: --cap-epsilon {cap.epsilon:g} --cap-delta {cap.delta:g}")


def print_cap(found: dict[str, Any], as_json: bool) -> None:
    """Print the owner's budget over all tasks, and what counts against it."""
    print(json.dumps(found, indent=2, ensure_ascii=False) if as_json else _cap(found))


def _cap(found: dict[str, Any]) -> str:
    """Say what limits all tasks together, and what counts against it."""
    if found["epsilon"] is None:
        delta = "" if found["delta"] is None else f" (δ: at most {found['delta']:g})"
        return NO_CAP + delta
    delta = "any δ" if found["delta"] is None else f"δ = {found['delta']:g}"
    counted = found["counted"]
    told = (
        "a task without a guarantee"
        if counted is None
        else f"ε = {output.epsilon_text(counted['epsilon'])}, δ = {counted['delta']:g}"
    )
    return f"cap over all tasks: ε = {found['epsilon']:g}, {delta}; counted against it: {told}"


def can_ask() -> bool:
    """Tell whether somebody sits there."""
    return sys.stdin.isatty()


def ask(question: str, option: str) -> bool:
    """Ask the owner; where nobody can answer, name the option that does."""
    if not can_ask():
        from crowdml.core import BadInput

        raise BadInput("nobody is there to be asked", hint=f"read the terms, then say {option}")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def warn(line: str) -> None:
    """Tell the owner something about the rows."""
    print(f"warning: {line}", file=sys.stderr, flush=True)


def changed(change: RowsChanged) -> str:
    """Ask about rows that are quite different from those of last time."""
    return (
        f"{change.new} of {change.rows} rows were never seen before, and {change.gone} of the {change.used} that were "
        "used in releases are gone.\nIf they are the same samples written differently (one more digit, another unit), "
        "their uses would be\ncounted from 0 again and the promise broken: say no, and put the file back as it was.\n"
        "Are they other samples?"
    )


@contextmanager
def interruptible(consolation: str) -> Iterator[None]:
    """End with code 130 on Ctrl-C, before typer makes an empty line of it."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\ninterrupted: {consolation}", file=sys.stderr)
        raise SystemExit(130) from None


class Progress:
    """One line on standard error per check-in; on a terminal they replace each other."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def tell(self, line: str) -> None:
        """Show a line; on a terminal it takes the place of the one before."""
        if self._live:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def update(self, device: Device, outcome: Outcome) -> None:
        """Show what became of a check-in."""
        what = f"refused ({outcome.code}), spent all the same" if outcome.status == "refused" else outcome.status
        promised = device.live.plan.terms.promised
        spent = f"ε = {output.epsilon_text(outcome.epsilon)}" if promised else "no formal guarantee"
        self.tell(f"release {outcome.releases}: {what}, version {outcome.version}, {spent}")

    def end(self, device: Device, summary: Summary) -> None:
        """Say how it ended."""
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr)
        print(f"{summary.releases} releases, {summary.used} used, {summary.refused} refused: {summary.reason}")
        if device.live.plan.terms.promised:
            spent = output.promise_text(summary.spent.epsilon, summary.spent.delta)
            whom = "the sample that is worst off" if device.live.plan.terms.unit == "sample" else "this device"
            print(f"spent so far: {spent} for {whom}")
        else:
            print("no formal guarantee")


class JsonLines:
    """One JSON line on standard output per check-in, and one at the end."""

    def tell(self, line: str) -> None:
        """Say why nothing happens."""
        self._write({"event": "waiting", "why": line})

    def update(self, device: Device, outcome: Outcome) -> None:
        """Write what became of a check-in."""
        epsilon = outcome.epsilon if device.live.plan.terms.promised else None
        self._write({"event": "check-in"} | vars(outcome) | {"epsilon": epsilon})

    def end(self, device: Device, summary: Summary) -> None:
        """Write how it ended."""
        spent = vars(summary.spent) if device.live.plan.terms.promised else None
        self._write({"event": "end"} | vars(summary) | {"spent": spent})

    @staticmethod
    def _write(content: dict[str, Any]) -> None:
        print(json.dumps(content, ensure_ascii=False), flush=True)


def print_personal(model: Personal, path: Path, as_json: bool) -> None:
    """Say how a model of the owner's own compares with the common one, and where it is."""
    compared = model.held_out
    if as_json:
        told = {"model": str(path), "version": model.version, "steps": model.steps}
        print(json.dumps(told | {"held_out": vars(compared) if compared else None}))
        return
    if model.steps is None:
        print(f"your own model, as {model.live.task.algorithm.kind} keeps it on this device: {path}")
    else:
        print(f"version {model.version} of the common model, and {model.steps} steps of your own: {path}")
    if compared:
        wrong = _compared(compared, model.live.task.target)
        which = (
            "rows of the file, which flatter yours if it has learnt from them"
            if model.steps is None
            else "rows kept back"
        )
        print(f"on {compared.rows} {which}: {wrong}")
        if compared.personal > compared.common and model.steps is not None:
            print("the common model does better here: fewer or smaller steps (--steps, --rate) may help")
    print("keep the file to yourself: your steps have no noise")


def _compared(found: HeldOut, target: Target) -> str:
    """Say how both models did: by rows that were wrong, or by the mean error of a number in its unit."""
    if target.has_accuracy:
        return f"{found.common:g} wrong with the common model, {found.personal:g} with yours"
    common, personal = (target.error_of(share / found.rows) for share in (found.common, found.personal))
    return f"off by {common} with the common model, by {personal} with yours, in the mean"


def print_status(report: dict[str, Any], as_json: bool) -> None:
    """Print which tasks a device has joined, what each promised and spent, and what its server says."""
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    print(f"device in {report['home']}\n{_cap(report['cap'])}")
    for task in report["tasks"] or [None]:
        print("has not joined any task" if task is None else "")
        for name, value in () if task is None else _status_lines(task):
            print(f"  {name:12} {value}")


def _status_lines(task: dict[str, Any]) -> list[tuple[str, str]]:
    says, spending = task["server_says"], task["spending"]
    lines = [("task", f"{task['task']} ({task['state']})"), ("server", task["server"])]
    if spending:
        odds = [("odds", _odds(spending))] if spending["odds"] else []
        lines += [*odds, ("promised", _promised(spending)), ("rests on", task["rests_on"]), ("spent", _spent(spending))]
    if task["unsettled"]:
        lines.append(("unsettled", f"{task['unsettled']}: will be sent again, unchanged"))
    if says and "error" in says:
        lines.append(("server says", "; ".join(part.strip() for part in says["error"].splitlines())))
    elif says:
        changed = "" if says["same_task"] else "; ITS SIGNED TASK IS NOT THE ONE YOU ACCEPTED"
        state = SAYS.get(says["state"], "in an unknown state")
        lines.append(("server says", f"{state}, {says['check_ins']} check-ins of this device{changed}"))
    return lines


def print_ledger(report: dict[str, Any], as_json: bool) -> None:
    """Print promises, releases and the last hash of a ledger, and how the server's receipts compare with it."""
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    promises = [_promises(account, spending) for account, spending in report["tasks"].items()]
    rows = []
    for number, release in enumerate(report["releases"], start=1):
        settled = "no" if release["key"] in report["unsettled"] else "yes"
        rows.append(
            (number, *(release[name] for name in ("task", "version", "samples", "most")), settled, release["key"])
        )
    columns = ("#", "task", "version", "samples", "uses of the most used", "settled", "key")
    releases = output.table("\nReleases", columns, rows, right=(columns[0], *columns[2:5]))
    output.keep_words(releases, 0, 2, 3, 4, 5)
    chain = f"\n{report['entries']} entries, chain verified; last hash {report['head']}"
    output.show("Promises", *promises, "", _cap(report["cap"]), *_open_and_ended(report["tasks"].values()))
    output.show(releases, chain)
    for account, found in (report["compared"] or {}).items():
        if "error" in found:
            output.show(f"{account}: not compared: {found['error']}")
        else:
            receipts = f"the server has {found['receipts']} receipts, each with a charge here"
            output.show(f"{account}: {receipts}; {found['charges']} charges in all")


def _open_and_ended(tasks: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Say what open tasks may still spend, and what ended ones gave back, as far as ε can be stated."""
    promised = [spending for spending in tasks if spending["promised"]]
    still = [spending for spending in promised if not spending["closed"]]
    if still:
        yield f"open tasks may still spend ε = {sum(map(_remaining, still)):.4g} of what was promised"
    given_back = sum(map(_remaining, promised)) - sum(map(_remaining, still))
    if given_back > 0:
        yield f"ended tasks gave back ε = {given_back:.4g}: it no longer counts against a cap"


def _remaining(spending: dict[str, Any]) -> float:
    """ε of a promise that is not spent; of an ended task what it no longer counts with."""
    used = spending["counted"] if spending["closed"] else spending["spent"]
    left: float = spending["promised"]["epsilon"] - (used or spending["promised"])["epsilon"]
    return max(0.0, left)


def draw_budget(report: dict[str, Any], path: Path) -> None:
    """Draw a bar for each task: spent, still promised, given back; and the owner's cap."""
    from crowdml.core import BadInput
    from crowdml.core.files import save_figure

    tasks = {account: spending for account, spending in report["tasks"].items() if spending["promised"]}
    if not tasks:
        raise BadInput(
            "no task of this device has an ε to draw", where="--plot", hint="join one that promises something"
        )
    from matplotlib.figure import Figure

    bars = [_bar(spending) for spending in tasks.values()]
    together = tuple(map(sum, zip(*bars, strict=True)))
    names = [f"{account}\n{odds_so_far(spending)}" for account, spending in tasks.items()]
    figure = Figure(figsize=(8, 2.2 + 0.55 * len(tasks)), layout="constrained")
    axes = figure.subplots()
    # Okabe and Ito's colours, with hatching as a second cue.
    looks = (("spent", "#D55E00", ""), ("still promised", "#56B4E9", "//"), ("given back", "#DDDDDD", ".."))
    for place, bar in enumerate([*bars, together]):
        left = 0.0
        for length, (label, colour, hatch) in zip(bar, looks, strict=True):
            shown = label if place == 0 else None
            axes.barh(place, length, left=left, height=0.6, color=colour, hatch=hatch, edgecolor="white", label=shown)
            left += length
    if report["cap"]["epsilon"] is not None:
        last = len(bars)
        axes.vlines(report["cap"]["epsilon"], last - 0.45, last + 0.45, "black", "--", label="your cap over all tasks")
    axes.axhline(len(bars) - 0.5, color="grey", linewidth=0.6)
    axes.set_yticks(range(len(bars) + 1), [*names, "all tasks together"], fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="ε", xlim=(0, None), title="Privacy budget of this device")
    figure.legend(loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    save_figure(figure, path)
    output.say(f"figure: {path}")


def odds_so_far(spending: dict[str, Any]) -> str:
    """Say how often a guess is right, shortly."""
    odds = spending["odds"]
    return f"{odds['spent']} right guesses of 100 so far, {odds['promised']} at most"


def _bar(spending: dict[str, Any]) -> tuple[float, float, float]:
    """ε spent, still promised, and given back: together what was promised."""
    promised, spent = spending["promised"]["epsilon"], (spending["spent"] or spending["promised"])["epsilon"]
    back = _remaining(spending) if spending["closed"] else 0.0
    spent = min(spent, promised - back)
    return spent, promised - back - spent, back


def _promises(account: str, spending: dict[str, Any]) -> Table:
    """Say line by line what a task promises, and what is spent and left of it."""
    odds = spending["odds"]
    lines = (
        (
            "right guesses of 100",
            f"{odds['spent']} so far, {odds['promised']} at most" if odds else "nothing is promised",
        ),
        ("promised", _promised(spending)),
        ("spent", _spent(spending)),
        ("left", _left(spending)),
        ("for the whole device", _told(spending["spent_by_device"])),
    )
    made = output.table(account, ("", ""), lines)
    made.show_header = False
    return made


def _odds(spending: dict[str, Any]) -> str:
    """Say how often a guess is right, so far and in the end."""
    odds, what = spending["odds"], "one row" if spending["unit"] == "sample" else "all your rows"
    return (
        f"a guess about {what} is right {odds['promised']} times in 100 at most, with all that may come; "
        f"{odds['spent']} so far (a coin: 50)"
    )


def _promised(spending: dict[str, Any]) -> str:
    if spending["promised"] is None:
        return str(spending["guarantee"])
    return f"{_told(spending['promised'])} for each {spending['unit']} in {spending['uses']} releases"


def _spent(spending: dict[str, Any]) -> str:
    told = "" if spending["promised"] is None else f", {_told(spending['spent'])}"
    return f"{spending['releases']} releases{told}" + (" (closed)" if spending["closed"] else "")


def _left(spending: dict[str, Any]) -> str:
    if spending["promised"] is None:
        return "-"
    if spending["closed"]:
        return f"nothing: closed, counts {_told(spending['counted'])} against a cap"
    if spending["unit"] == "device":
        return f"{spending['uses_left']} releases"
    samples = spending["samples"]
    most = spending["uses"] - samples.get("floor", 0)
    return f"{samples['used_up']} of {samples['used']} samples used up; {most} uses of each in all"


def _told(promise: dict[str, float] | None) -> str:
    return output.promise_text(promise["epsilon"], promise["delta"]) if promise else "no formal guarantee"
