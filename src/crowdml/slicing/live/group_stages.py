"""The stages of a group, and what its machine takes in each.

gathering ─► preparing ─► running ─► preparing …            a cut at the end of a turn begins the next one
│           └─ loss, complaint, stall ─► preparing, back to the cut
├─ at the end of a pass ─► sharing ─► preparing
└─ too few members ─► waiting            all passes made ─► done
"""

from __future__ import annotations

GATHERING, PREPARING, RUNNING, SHARING, WAITING, DONE = (
    "gathering",
    "preparing",
    "running",
    "sharing",
    "waiting",
    "done",
)
ACCEPTED: dict[str, tuple[str, ...]] = {
    GATHERING: (),
    PREPARING: ("ready", "complain"),
    RUNNING: ("deposit", "complain", "stalled"),
    SHARING: ("upload",),
    WAITING: (),
    DONE: (),
}
"""What the machine takes from members in each stage, if it is of the present attempt; everything else is dropped."""
MOST_ATTEMPTS = 100
"""Attempts at one turn: each that moves a piece shows rows to another member, so a turn ends before there are many."""
USUAL_CUT = 50
LAST_ATTEMPT = (1 << 16) - 1
