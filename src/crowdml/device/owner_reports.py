"""Reports for the owner: what a device has joined, what its ledger holds, and whether the server agrees."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from crowdml.core import CrowdError
from crowdml.core.errors import TermsViolated, Unreachable
from crowdml.device.calls import connected
from crowdml.device.device_home import Home, Member
from crowdml.device.ledger_store import Ledger
from crowdml.device.server_connection import Connection
from crowdml.privacy import Event
from crowdml.privacy.ledger.spending import SpendingState
from crowdml.privacy.odds import odds_after
from crowdml.task.owners import OwnerPromise, owner_promise

PATIENCE_S = 5.0
"""How long a report waits for a server."""


def report(home: Home, *, ask: bool, connect: Callable[..., Connection] = Connection) -> dict[str, Any]:
    """Say which tasks the device has joined, what it has spent, and what the server says of it.

    Args:
        home: The device's folder.
        ask: Whether to ask the server.
        connect: For tests: makes the connection.
    """
    with home.ledger() as ledger:
        waiting = ledger.unsettled()
        return {
            "home": str(home.path),
            "cap": _cap(home, ledger),
            "tasks": [
                {
                    "task": member.task,
                    "account": member.account,
                    "server": member.server,
                    "state": member.state,
                    "device": member.device,
                    "operator": member.operator,
                    "task_hash": member.task_hash,
                    "unsettled": sum(unsettled.task == member.account for unsettled in waiting),
                    "spending": spending(ledger, member.account, told := _told(home, member)),
                    "rests_on": told.short,
                    "server_says": _server_says(member, connect) if ask and member.state == "joined" else None,
                }
                for member in home.members()
            ],
        }


def ledger_report(home: Home, *, compare: bool, connect: Callable[..., Connection] = Connection) -> dict[str, Any]:
    """Say what the ledger holds. Opening it has verified the chain of hashes.

    Args:
        home: The device's folder.
        compare: Whether to compare with the servers' receipts, too.
        connect: For tests: makes the connection.

    Raises:
        TermsViolated: A server has a receipt that the ledger knows nothing of.
    """
    with home.ledger() as ledger:
        entries = [json.loads(raw) for raw in ledger.entries()]
        charges = [entry for entry in entries if entry["kind"] == "charge"]
        told = {member.account: _told(home, member) for member in home.members()}
        compared = {}
        if compare:
            for member in home.members():
                if member.state == "joined":
                    compared[member.account] = _compare(member, charges, connect)
        return {
            "head": ledger.chain.head.hex(),
            "entries": len(entries),
            "cap": _cap(home, ledger),
            "tasks": {account: spending(ledger, account, told.get(account)) for account in ledger.chain.tasks},
            "releases": [
                {name: charge[name] for name in ("task", "key", "body", "samples", "most", "version")}
                for charge in charges
            ],
            "unsettled": [unsettled.key for unsettled in ledger.unsettled()],
            "compared": compared if compare else None,
        }


def cap_report(home: Home) -> dict[str, Any]:
    """Say what the owner's cap is, and what counts against it."""
    with home.ledger() as ledger:
        return _cap(home, ledger)


def _cap(home: Home, ledger: Ledger) -> dict[str, Any]:
    """The owner's limits, None where none is set, and what all tasks count for: null where ε is infinite."""
    owner, counted = home.owner(), ledger.chain.reserved()
    return {"epsilon": owner.epsilon, "delta": owner.delta, "counted": _figures(counted.epsilon, counted.delta)}


def spending(ledger: Ledger, account: str, told: OwnerPromise | None = None) -> dict[str, Any] | None:
    """Say what one task has promised and spent; None if the ledger does not know it.

    Args:
        ledger: The device's ledger.
        account: The task's name in it.
        told: What the owner was told; None where the task itself is gone and only the ledger remembers it.
    """
    state = ledger.chain.tasks.get(account)
    if state is None:
        return None
    terms = state.terms
    return {
        "guarantee": "sound" if terms.promises else "no formal guarantee",
        "unit": terms.unit if terms.promises else None,
        "promised": _figures(terms.filter.epsilon, terms.filter.delta),
        "odds": _odds(state, told) if terms.promises else None,
        "spent": _event(state.spent(), terms.filter.delta),
        "spent_by_device": _event(state.of_device(), terms.filter.delta),
        "releases": state.releases,
        "uses": terms.uses if terms.promises else None,
        "uses_left": ledger.chain.left(account) if terms.promises else None,
        "samples": _uses(state),
        "closed": state.closed,
        "freed": state.freed,
        "counted": _figures(state.reserved().epsilon, state.reserved().delta),
    }


def _uses(state: SpendingState) -> dict[str, int]:
    """How many samples were used how often: used at all, used up, most; after a loss also what all count with."""
    counts, floor = state.uses.counts(), state.uses.floor
    used = counts[counts > 0] + floor
    full = int((used >= state.terms.uses).sum()) if state.terms.unit == "sample" else 0
    lost = {"floor": floor} if floor else {}
    return {"used": len(used), "used_up": full, "most": int(np.max(used, initial=floor))} | lost


def _event(event: Event, delta: float) -> dict[str, float] | None:
    promise = event.promise(delta)
    return _figures(promise.epsilon, promise.delta)


def _figures(epsilon: float, delta: float) -> dict[str, float] | None:
    """An infinite ε is none."""
    return {"epsilon": epsilon, "delta": delta} if math.isfinite(epsilon) else None


def _told(home: Home, member: Member) -> OwnerPromise:
    """Say what the owner was told of a task."""
    live = home.live(member)
    return owner_promise(live.task, live.plan)


def _odds(state: SpendingState, told: OwnerPromise | None) -> dict[str, int]:
    """Right guesses out of 100 at most: about the promised unit in all and so far, about the whole device so far."""
    promised = (told.promised.odds if told else None) or odds_after(state.terms.event, state.terms.uses)
    whole = state.odds_of_device().of_100
    return {"promised": promised.of_100, "spent": state.odds().of_100, "spent_by_device": whole}


def _server_says(member: Member, connect: Callable[..., Connection]) -> dict[str, Any]:
    try:
        with connected(member, connect, patience_s=PATIENCE_S) as calls:
            me = calls.me()
    except CrowdError as error:
        return {"error": str(error)}
    return {"state": me.state, "check_ins": me.check_ins, "same_task": me.task_hash == member.task_hash}


def _compare(member: Member, charges: list[dict[str, Any]], connect: Callable[..., Connection]) -> dict[str, Any]:
    """Look up every receipt of the server in the ledger."""
    try:
        with connected(member, connect, patience_s=PATIENCE_S) as calls:
            receipts = calls.receipts()
    except Unreachable as error:
        return {"error": str(error)}
    charged = {charge["key"]: charge["body"] for charge in charges if charge["task"] == member.account}
    for key, body in receipts.items():
        if charged.get(key) != body:
            raise TermsViolated(
                f"{member.task}: the server has a receipt ({key}) that this ledger has no charge for: it was set back"
            )
    return {"receipts": len(receipts), "charges": len(charged)}
