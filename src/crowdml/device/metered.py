"""Whether the network is metered, as far as this machine can tell: for owners whose devices wait for one that is not.

NetworkManager knows, by what its user said or by a guess: a phone's hotspot says so itself. Where nobody knows, the
device stops and says so; it does not go on as if it were free.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from crowdml.core import BadInput

ASK = (
    "busctl",
    "--system",
    "get-property",
    "org.freedesktop.NetworkManager",
    "/org/freedesktop/NetworkManager",
    "org.freedesktop.NetworkManager",
    "Metered",
)
KNOWN = {"u 1": True, "u 2": False, "u 3": True, "u 4": False}
"""NetworkManager's answers: yes, no, probably yes, probably no; 0 is unknown."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def is_metered(run: Run = subprocess.run) -> bool:
    """Ask whether what is sent now costs its owner something."""
    try:
        answer = run(ASK, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    if answer not in KNOWN:
        raise BadInput(
            "nothing here can tell whether the network is metered",
            where="--unmetered",
            hint="NetworkManager can, where it runs; or leave the option out",
        )
    return KNOWN[answer]
