"""What commands print and write: progress, tables, JSON, figures."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdml.core import BadInput
from crowdml.core.validation import writable, write_whole

if TYPE_CHECKING:
    from crowdml.simulation import Result

FIGURE_KINDS = (".png", ".svg", ".pdf")
MOST_WEIGHTS = 20
"""Devices whose weight is printed; a file has them all."""


def check_paths(json_path: Path | None, plot_path: Path | None) -> None:
    """Refuse outputs that could not be written, before any work is done."""
    if json_path and json_path != Path("-"):
        writable(json_path)
    if plot_path:
        if plot_path.suffix not in FIGURE_KINDS:
            raise BadInput(f"{plot_path} has no known ending for a figure", hint="use " + ", ".join(FIGURE_KINDS))
        writable(plot_path)


def say(text: str) -> None:
    """Print a line for people; scripts read standard output or a file."""
    print(text, file=sys.stderr)


def write_json(content: dict[str, Any], path: Path | None) -> None:
    """Write a result for scripts."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    if path == Path("-"):
        sys.stdout.write(text)
    elif path:
        write_whole(path, text.encode())
        say(f"result: {path}")


class Progress:
    """A progress bar on standard error, with the error as it falls."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        """Begin a bar for the named task."""
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[error]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            disable=quiet,
            transient=True,
        )
        self._row = self._bar.add_task(f"{name}: preparing", total=1.0, error="")
        self._name = name

    def __enter__(self) -> Progress:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Take the bar away. Ctrl-C ends the program with one line, before typer makes an empty one of it."""
        self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            say("; ".join(["interrupted", *getattr(error, "__notes__", [])]))
            raise SystemExit(130) from None

    def named(self, name: str, share: float, error: float) -> None:
        """Move on, in the part of that name."""
        self._name = name
        self.update(share, error)

    def update(self, share: float, error: float) -> None:
        """Move on; no error is shown before one was measured."""
        shown = "" if math.isnan(error) else f"error {error:.3f}"
        self._bar.update(self._row, completed=share, description=self._name, error=shown)


def print_result(result: Result) -> None:
    """Print what was learnt, what it cost in privacy, and how long it took."""
    from rich.console import Console
    from rich.table import Table

    final = {name: {"mean": math.nan, "std": math.nan} | _known(own) for name, own in result.to_json()["final"].items()}
    table = Table(title=f"{result.task.name}: {result.task.objective}".rstrip(": "), title_justify="left", box=None)
    table.add_column("measure")
    table.add_column("mean", justify="right")
    table.add_column(f"s.d. of {result.trials} trial{'s' * (result.trials > 1)}", justify="right")
    for name in (name for name in ("test_error", "validation_error") if name in final):
        words = name.replace("_error", " accuracy")
        style = "bold" if name == "test_error" else None
        table.add_row(words, f"{1 - final[name]['mean']:.4f}", f"{final[name]['std']:.4f}", style=style)
    for name, values in sorted(final.items(), key=lambda item: item[0] != "test_error"):
        table.add_row(name.replace("_", " "), f"{values['mean']:.4f}", f"{values['std']:.4f}")
    for name, errors in result.beside.items():
        spread = errors.std(ddof=1) if len(errors) > 1 else 0.0
        table.add_row(f"beside it: {name}, test accuracy", f"{1 - errors.mean():.4f}", f"{spread:.4f}")
    console = Console()
    console.print(table)
    for line in [*average_lines(result), *privacy_lines(result.privacy)]:
        console.print(line, highlight=False)
    console.print(
        f"{result.updates} updates in {result.run_seconds:.2f} s, after {result.compile_seconds:.1f} s of compiling",
        highlight=False,
        style="dim",
    )
    for warning in result.warnings:
        console.print(f"warning: {warning}", highlight=False, style="bold yellow")
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, style="dim")


def _known(figures: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if value is not None}


def print_comparison(results: dict[str, Result]) -> None:
    """Print several results side by side."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for name, align in (("crowd", "left"), ("test accuracy", "right"), ("s.d.", "right"), ("ε for one sample", "left")):
        table.add_column(name, justify=align)  # type: ignore[arg-type]
    for label, result in results.items():
        accuracy = 1 - result.measured["test_error"][-1]
        promise = result.privacy["sample"]
        told = _promise(promise) if promise else result.privacy["guarantee"]
        table.add_row(label, f"{accuracy.mean():.3f}", f"{accuracy.std(ddof=1):.3f}", told)
    Console().print(table)


def average_lines(result: Result) -> list[str]:
    """Say how often weights were used, and what devices counted in the last version of the first trial."""
    if not result.averages:
        return []
    first, used = result.averages[0], sum(own.used for own in result.averages)
    weights = sorted((own["device"], sum(own["weights"]) / len(own["weights"])) for own in first.to_json()["last"])
    shown = ", ".join(f"{device}: {weight:.3f}" for device, weight in weights[:MOST_WEIGHTS])
    more = f" and {len(weights) - MOST_WEIGHTS} more" if len(weights) > MOST_WEIGHTS else ""
    return [
        f"averaging: weights of their own in {used} of {sum(own.versions for own in result.averages)} versions",
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
            f"  the terms would promise      {_promise(promised)} in all, for one {privacy['unit']} in "
            f"{promised['uses']} releases; enforced by {privacy['enforced_by']}"
        )
    if privacy["paper_claim"]:
        lines.append(f"  the paper would claim        {_promise(privacy['paper_claim'])}")
    lines.append(f"  what it really adds up to    {_promise(privacy['sample'])} for one sample")
    device = privacy["device"]
    told = _promise(device) if device else "nothing that is worth a figure"
    lines.append(f"                               {told} for one device")
    by = privacy["sample"]["by"]
    lines.append(f"  proven by                    {_proofs(by, device['by'] if device else by)}")
    for group in privacy.get("owners", ()):
        lines.append(
            f"  {group['devices']} owners have chosen ε = {group['epsilon']:g}: {_promise(group['sample'])} for one "
            f"sample, {_promise(group['device'])} for one device, noise {group['noise']:g} levels"
        )
    lines.append(f"  noise: {privacy['noise']}")
    return lines


def _proofs(sample: str, device: str) -> str:
    """Name what proves the two figures."""
    return sample if sample == device else f"{sample} for one sample, {device} for one device"


def _promise(promise: dict[str, float]) -> str:
    delta = f", δ = {promise['delta']:g}" if promise["delta"] else ""
    return f"ε = {promise['epsilon']:.4g}{delta}"
