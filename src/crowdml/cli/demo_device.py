"""One device of the demo, in a process of its own. Imported once, by the process from which all of them are forked."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from crowdml.device.device import Device
from crowdml.device.joining import join


def run(link: str, home: Path, rows: Path, results: Any) -> None:
    """Join, work until everything is spent, and report ε."""
    # Ctrl-C goes to the demo, which ends its devices.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    join(link, home, accept=lambda _: True, accept_no_guarantee=lambda _: True)
    with Device(home) as device:
        releases = device.live.task.stop.max_releases
        summary = device.run(rows, releases=releases)
        promised = device.live.plan.sound is not None
    results.put({"epsilon": summary.spent.epsilon, "delta": summary.spent.delta} if promised else None)
