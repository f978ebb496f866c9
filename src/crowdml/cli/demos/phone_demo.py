"""The demo with a phone in it: a server on this machine, companions that keep the crowd alive, and a link to join by.

Companions are real devices with ledgers and noise of their own, each a process. Their rows are made up as they go, so
that they never run out: digits of scikit-learn with a shaky hand, or motion by a formula.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdml.cli import output

if TYPE_CHECKING:
    from crowdml.cli.demos.demo_crowd import Crowd

COMPANIONS = 8
FURTHER = 2
"""Links beyond the first: each is good for one browser."""
PACE_S = 6.0
"""A companion contributes about so often."""
TASKS = {"activity": "activity-phone", "digit": "draw-a-digit"}


def phone_demo(crowd: Crowd, kind: str) -> None:
    """Open a task for a phone, keep it alive, and show how it goes on until Ctrl-C."""
    with output.Progress("starting the server") as progress:
        crowd.open(Path(__file__).with_name(f"{TASKS[kind]}.toml"), [], measured=kind == "digit")
        first, *others = crowd.invite(1 + FURTHER + COMPANIONS)
        crowd.start(_accompany, [(link, kind, seed) for seed, link in enumerate(others[FURTHER:])])
        _print(crowd, first, others[:FURTHER])
        for summary in crowd.watch():
            recent = summary["recent_error"]
            error = recent["estimate"] if recent else float("nan")
            progress.named(f"{summary['devices']} devices, {summary['check_ins']} check-ins", 0.0, error)


def _print(crowd: Crowd, link: str, others: list[str]) -> None:
    import segno

    segno.make(link, error="m").terminal(out=sys.stdout, compact=True)
    # Plainly printed: a link that is wrapped cannot be copied.
    print(f"Join from a browser on this machine:\n{link}", *others, sep="\nFor another browser:\n")
    print(f"Watch the crowd:\n{crowd.address}/tasks/{crowd.task.name}", flush=True)
    port = crowd.address.rpartition(":")[2]
    output.show(
        "An Android phone on a USB cable opens the same link after this command:",
        f"  adb reverse tcp:{port} tcp:{port}",
        "Other phones need a server with a certificate: docs/tutorials/join-from-a-phone.md, step 7",
        f"{COMPANIONS} companions contribute too; their rows are made up. Ctrl-C ends it all.",
        style="dim",
    )


def _accompany(home: Path, link: str, kind: str, seed: int) -> None:
    """Be a companion until the demo ends it. Runs in a process of its own."""
    from crowdml.device.device import Device
    from crowdml.device.joining import join

    # Ctrl-C goes to the demo, which ends its companions.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    join(link, home, accept=lambda _: True, accept_no_guarantee=lambda _: True)
    with Device(home) as device:
        batch = device.live.algorithm.schedule.batch
        device.run(_paced(ROWS[kind](seed), batch, seed))


def _paced(rows: Iterator[tuple[Any, int]], batch: int, seed: int) -> Iterator[tuple[Any, int]]:
    """Hand rows over a batch at a time, now and then."""
    draws = np.random.default_rng(seed)
    while True:
        for _ in range(batch):
            yield next(rows)
        time.sleep(PACE_S * draws.uniform(0.5, 1.5))


def _shaky_digits(seed: int) -> Iterator[tuple[Any, int]]:
    """Redraw digits of scikit-learn for ever, each a little different."""
    from crowdml.data import load

    draws, digits = np.random.default_rng(seed), load("digits")
    while True:
        at = int(draws.integers(len(digits.train_targets)))
        row = digits.train_rows[at] + draws.integers(-1, 2, digits.train_rows.shape[1]) * (digits.train_rows[at] > 0)
        yield np.clip(row, 0, 16).astype(np.float32), int(digits.train_targets[at])


def _made_up_motion(seed: int) -> Iterator[tuple[Any, int]]:
    """Move for ever, by a formula."""
    from crowdml.data.sensing.made_up_motion import made_up_row

    draws = np.random.default_rng(seed)
    while True:
        activity = int(draws.integers(3))
        yield made_up_row(activity, draws), activity


ROWS = {"activity": _made_up_motion, "digit": _shaky_digits}
