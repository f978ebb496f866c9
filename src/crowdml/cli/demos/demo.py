"""crowdml demo: the real thing on loopback. A server, twenty device processes, a promise that is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crowdml.cli import output

if TYPE_CHECKING:
    from crowdml.cli.demos.demo_crowd import Crowd

TASK = Path(__file__).with_name("demo.toml")
DEVICES = 20

ALGORITHMS: dict[str, list[str]] = {
    "crowd-sgd": [],
    "local-sgd": [
        "algorithm={kind='local-sgd', local-steps=0, local-batch=70, server-batch=5, stale='accept', "
        "rate={kind='inverse-sqrt', c=100.0}}"
    ],
    "fedsgd": ["algorithm={kind='fedsgd', per-round=20, rate={kind='inverse-sqrt', c=100.0}}"],
    "fedavg": ["algorithm={kind='fedavg', per-round=20, local-batch=10}", "privacy={mode='none'}"],
}
"""Changes to the task for each algorithm. Clipping whole messages of only twenty devices would drown what fedavg sends
in noise, so it runs without a promise here."""


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running at the end, until Ctrl-C.")] = False,
    algorithm: Annotated[
        Literal["crowd-sgd", "local-sgd", "fedsgd", "fedavg", "slicenet"], typer.Option(help="How the crowd learns.")
    ] = "crowd-sgd",
    phone: Annotated[
        bool, typer.Option("--phone", help="Print a link by which a browser joins, with companions; until Ctrl-C.")
    ] = False,
    task: Annotated[
        Literal["digit", "activity"], typer.Option(help="With --phone: draw digits, or sense motion.")
    ] = "digit",
    json: Annotated[Path | None, typer.Option(help="Write the outcome here.")] = None,
) -> None:
    """Watch twenty devices learn handwritten digits from a real server, in less than a minute.

    A server starts on this machine, with its database in a temporary folder. Twenty processes join it as devices,
    each with some seventy images of its own; what they send carries Gaussian noise, and each keeps a ledger of what
    it has spent. The address of a page that shows how it goes on is printed. With --phone you join yourself, by a link
    or its QR code, and companions keep the crowd alive.

    With `--algorithm slicenet` twelve devices hold pieces of one net, in two groups. A follower is killed on the way,
    and what happens is told as it happens. There is no promise then.
    """
    import tempfile

    # The server is a process of its own: what it lacks should be said here, before anything starts.
    import sklearn  # noqa: F401
    import uvicorn  # noqa: F401

    from crowdml.cli.demos.demo_crowd import Crowd

    output.check_paths(json, None)
    with tempfile.TemporaryDirectory(prefix="crowdml-demo-") as folder, Crowd(Path(folder)) as crowd:
        if phone:
            from crowdml.cli.demos.phone_demo import phone_demo

            phone_demo(crowd, task)
            return
        if algorithm == "slicenet":
            from crowdml.cli.demos.demo_slices import learn_in_slices

            outcome = learn_in_slices(crowd, TASK)
        else:
            outcome = _learn(crowd, algorithm)
            _print(outcome)
        output.write_json(outcome, json)
        if keep:
            output.say(f"the server stays at {crowd.address}; Ctrl-C ends it")
            crowd.wait()


def _learn(crowd: Crowd, algorithm: str) -> dict[str, Any]:
    """Let the crowd learn, with a bar; return what it came to."""
    with output.Progress("starting the server") as progress:
        crowd.open(TASK, ALGORITHMS[algorithm])
        output.say(f"page: {crowd.address}/tasks/{crowd.task.name}")
        total = DEVICES * (crowd.task.stop.max_releases or 1)
        crowd.join(DEVICES)
        for check_ins, error in crowd.learning():
            progress.named(f"{DEVICES} devices, {check_ins} check-ins", min(1.0, check_ins / total), error)
        progress.named("the same crowd without noise", 1.0, crowd.error())
        return crowd.outcome()


def _print(outcome: dict[str, Any]) -> None:
    """Say what was learnt and what it cost."""
    spent, cost = outcome["spent"], "no formal guarantee"
    if spent:
        whom = f"for one {outcome['unit']}: the most in any ledger"
        cost = f"{spent['epsilon']:.3g}, δ = {spent['delta']:g}, {whom}"
    output.show(
        output.strong(f"accuracy on unseen digits   {outcome['accuracy']:.1%}"),
        f"without noise               {outcome['accuracy_without_noise']:.1%}",
        f"ε spent                     {cost}",
    )
    devices = f"{outcome['check_ins']} check-ins of {outcome['devices']} devices"
    output.show(f"{devices}, version {outcome['version']}, {outcome['seconds']:.0f} s", style="dim")
