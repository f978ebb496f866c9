"""The end of a task: the ledger closes it as soon as its end is public, and frees what the proof allows.

Public is an end that the server announces, or that the number of releases in the terms has reached; see
`crowdml.privacy.freeing`. A task that is closed takes no more charges, so a server gains nothing by announcing an end
that is none: it loses a device.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import CrowdError
from crowdml.device.calls import Calls
from crowdml.device.home import Home, Member
from crowdml.device.ledger_store import Ledger

STOPPED = "stopped"
"""What a server calls a task that has ended for good."""


def close_in_public(ledger: Ledger, account: str) -> None:
    """Close a task whose end is public; twice is as good as once."""
    if not ledger.chain.tasks[account].closed:
        ledger.close_task(account, public=True)


def close_ended(home: Home, ledger: Ledger, connected: Callable[[Member], Calls]) -> list[str]:
    """Ask the servers of all open tasks whether they have ended, and close those that have; return their names.

    For an owner whose cap is full: a device that does not run does not hear of ends. A server that does not answer,
    or no longer knows this device, has announced nothing.
    """
    closed = []
    for member in home.members():
        known = ledger.chain.tasks.get(member.account)
        if member.state != "joined" or known is None or known.closed:
            continue
        try:
            with connected(member) as calls:
                ended = calls.me().state == STOPPED
        except CrowdError:
            continue
        if ended:
            close_in_public(ledger, member.account)
            closed.append(member.account)
    return closed
