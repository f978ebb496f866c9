"""A server that cheats: it carries messages as it must, and some of them otherwise, to read what it should not.

Each plan is an attack that worked on the first version of the protocol. `CheatingServer` takes the place of the honest
machine, in a rehearsal or behind real HTTP, and afterwards works out from everything it was given whatever it can.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from typing import Any

import numpy as np

from crowdml.secure_aggregation import SumAborted, SumServer, shamir
from crowdml.secure_aggregation.commitments import digest
from crowdml.secure_aggregation.graph import Graph, circle
from crowdml.secure_aggregation.masked_vectors import Masks, own_mask_key, unpack
from crowdml.secure_aggregation.member_keys import AgreementKey, mask_key
from crowdml.secure_aggregation.stages import CONSENT, DONE, REVEAL
from crowdml.secure_aggregation.sum_messages import Consents, Flags, Items, Mail, Survivors, cut_tags

OWN, KEY = 0, 1


class Plan:
    """What a cheating server does. This one keeps to the rules.

    Attributes:
        target: Numbers of the members whose sum alone is wanted.
    """

    target: list[int]

    def begin(self, server: CheatingServer) -> None:
        """Look at the graph and choose a victim."""
        self.target = [0]

    def mail(self, server: CheatingServer, me: int, honest: Mail) -> Mail:
        """Choose what a member gets of its mail."""
        return honest

    def survivors(self, server: CheatingServer, me: int) -> Flags:
        """Choose who is said to have survived."""
        return server.survivors.copy()


class TwoSets(Plan):
    """Show one half of the circle that the victim has survived, and the other that it is lost."""

    def survivors(self, server: CheatingServer, me: int) -> Flags:
        """Cut the circle at the victim."""
        flags, place = server.survivors.copy(), server.places
        ahead = (place[me] - place[self.target[0]]) % len(place)
        flags[self.target[0]] = 2 * ahead <= len(place)
        return flags


class FewNeighbours(Plan):
    """Let the victim mask with t neighbours only, then call exactly those lost: their keys open all its pair masks."""

    def __init__(self, told: bool) -> None:
        """Say to the victim that the others have not shared, or just withhold their mail."""
        self.told = told

    def begin(self, server: CheatingServer) -> None:
        """Choose every other neighbour."""
        super().begin(server)
        near = sorted(server._near[0], key=lambda at: int(server.places[at] - server.places[0]) % len(server.places))
        self.chosen = {*near[::2], *near[1::2]} if len(near) < 2 * server.graph.threshold else set(near[::2])
        self.chosen = set(sorted(self.chosen, key=near.index)[: server.graph.threshold])

    def mail(self, server: CheatingServer, me: int, honest: Mail) -> Mail:
        """Cut the victim's mail short."""
        if me != self.target[0]:
            return honest
        sharers = honest.sharers.copy()
        if self.told:
            sharers[[at for at in server._near[me] if at not in self.chosen]] = False
        parcels = [
            parcel if at in self.chosen else None for at, parcel in zip(server._near[me], honest.parcels, strict=True)
        ]
        return Mail(sharers=sharers, parcels=tuple(parcels))

    def survivors(self, server: CheatingServer, me: int) -> Flags:
        """Call the chosen ones lost, to everybody."""
        flags = server.survivors.copy()
        flags[list(self.chosen)] = False
        return flags


class Island(Plan):
    """Call k/2 members lost on each side of a run of t + 1: the run's sum comes out alone."""

    def begin(self, server: CheatingServer) -> None:
        """Choose the run."""
        order, reach, size = server.around.tolist(), server.graph.reach, server.graph.threshold + 1
        self.target, self.moat = order[reach : reach + size], order[:reach] + order[reach + size : 2 * reach + size]

    def survivors(self, server: CheatingServer, me: int) -> Flags:
        """Cut the run off."""
        flags = server.survivors.copy()
        flags[self.moat] = False
        return flags


class CheatingServer(SumServer):
    """Carries out a plan.

    Attributes:
        plan: The plan.
        recovered: The target's sum, if it could be worked out.
    """

    plan: Plan = Plan()

    def __init__(self, *given: Any, **more: Any) -> None:
        """Begin as the honest machine does."""
        super().__init__(*given, **more)
        self.recovered: Any = None
        self.raw: dict[int, bytes] = {}
        self.seen: dict[int, Flags] = {}
        self.vouched: dict[int, dict[int, bytes]] = {}
        self.shares_of: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)

    def close_shares(self) -> None:
        """Plan once the graph stands, before mail goes out."""
        super().close_shares()
        self.around = circle(digest(b"circle", self._context), len(self.roster.slots))
        self.places = np.argsort(self.around)
        self.plan.begin(self)

    def fork(self, plan: Plan) -> CheatingServer:
        """Return a copy that goes on from where shares were closed, with a plan of its own."""
        other = copy.copy(self)
        other._bodies, other._tags, other._consents, other._reveals = {}, {}, {}, {}
        other.raw, other.seen, other.vouched, other.shares_of = {}, {}, {}, defaultdict(dict)
        other.blames, other.guilty, other._total = {}, set(), self._total.copy()
        other.plan = plan
        plan.begin(other)
        return other

    def mail(self, slot: int) -> Mail:
        """Hand over mail as planned."""
        return self.plan.mail(self, self._at[slot], super().mail(slot))

    def masked(self, slot: int, raw: bytes) -> None:
        """Keep every masked vector."""
        super().masked(slot, raw)
        self.raw[self._at[slot]] = raw

    def shown_survivors(self, slot: int) -> Survivors:
        """Name survivors as planned, with all tags that neighbours gave."""
        honest, me = super().shown_survivors(slot), self._at[slot]
        flags = self.seen.setdefault(me, self.plan.survivors(self, me))
        tags = [tag if flags[at] else None for at, tag in zip(self._near[me], honest.tags, strict=True)]
        return Survivors(flags=flags, tags=tuple(tags))

    def consent(self, slot: int, tags: bytes) -> None:
        """Keep tags by view."""
        me = self._at[slot]
        self.vouched[me] = dict(zip(np.flatnonzero(self.seen[me]).tolist(), cut_tags(tags), strict=True))
        self._consents[slot] = tags

    def close_consents(self) -> None:
        """Fix nothing."""
        self._leave(CONSENT, REVEAL, None)

    def consents(self, slot: int) -> Consents:
        """Give a member all tags of those who saw the same as it."""
        me = self._at[slot]
        same = {
            at: tags[me]
            for at, tags in sorted(self.vouched.items())
            if me in tags and (self.seen[at] == self.seen[me]).all()
        }
        flags = np.zeros(len(self.roster.slots), bool)
        flags[list(same)] = True
        return Consents(flags=flags, tags=b"".join(same.values()))

    def reveal(self, slot: int, shares: Items) -> None:
        """Keep every share."""
        me = self._at[slot]
        for at, share in zip(self._near[me], shares, strict=True):
            if share is not None:
                self.shares_of[at, OWN if self.seen[me][at] else KEY][me] = share
        self._reveals[slot] = shares

    def finish(self) -> Any:
        """Work out what the plan was after, and give no sum to anybody."""
        self.stage = DONE
        self.recovered = self.sum_of(self.plan.target)
        raise SumAborted("the cheating server has what it wanted, or not")

    # what can be worked out

    def secret(self, at: int, kind: int) -> bytes | None:
        """Give a secret back if there are enough shares."""
        found = sorted(self.shares_of[at, kind].items())[: self.graph.threshold]
        if len(found) < self.graph.threshold:
            return None
        points = np.array([[holder + 1 for holder, _ in found]], np.uint64)
        raw = np.frombuffer(b"".join(share for _, share in found), "<u4").astype(np.uint64)
        return shamir.join(points, raw.reshape(1, len(found), -1))[0]

    def sum_of(self, group: list[int]) -> Any:
        """Take all masks off the sum of a group; None where one of them stays."""
        masks, modulus = Masks(self.terms.size, self.terms.bits), 1 << self.terms.bits
        total = np.zeros(self.terms.size, np.int64)
        sharers = set(np.flatnonzero(self.sharers).tolist())
        for me in group:
            mask = self.secret(me, OWN)
            if mask is None or me not in self.raw:
                return None
            total += unpack(self.raw[me][: self.terms.body_bytes], self.terms.size, self.terms.bits).astype(np.int64)
            total -= masks.words(own_mask_key(mask, self._context)).astype(np.int64)
            masked_with = set(self._near[me]) & sharers
            if isinstance(self.plan, FewNeighbours) and me == self.plan.target[0]:
                masked_with = self.plan.chosen
            for other in masked_with - set(group):
                key = self._pair(me, other)
                if key is None:
                    return None
                words = masks.words(key).astype(np.int64)
                total += -words if me < other else words
        total %= modulus
        return np.where(total >= modulus >> 1, total - modulus, total)

    def _pair(self, one: int, other: int) -> bytes | None:
        for me, you in ((one, other), (other, one)):
            secret = self.secret(me, KEY)
            if secret is not None:
                agreed = AgreementKey(secret).agree(self.roster.fresh[you])
                return mask_key(agreed, self._context, min(one, other), max(one, other))
        return None


def first_graph(members: int, corrupt: int, lost: int) -> Graph:
    """Return the graph of the first version: t above the corrupt neighbours, and nothing about views."""

    def chance(among: int, marked: int, drawn: int, count: int) -> float:
        return math.comb(marked, count) * math.comb(among - marked, drawn - count) / math.comb(among, drawn)

    for neighbours in (*range(2, members - 1, 2), members - 1):
        threshold, missed = 0, 0.0
        while threshold < neighbours:
            missed += chance(members - 1, members - 1 - lost, neighbours, threshold)
            if members * missed > 2.0**-20:
                break
            threshold += 1
        exposed = members * sum(
            chance(members - 1, corrupt, neighbours, count) for count in range(threshold, min(neighbours, corrupt) + 1)
        )
        gone = corrupt + lost
        apart = (
            0.0
            if gone < neighbours
            else math.comb(members, 2) * math.perm(gone, neighbours) / math.perm(members, neighbours)
        )
        if threshold >= 2 and exposed + apart <= 2.0**-40:
            return Graph(members=members, neighbours=neighbours, threshold=threshold, agreeing=1, window=0)
    raise ValueError("no graph")


CHECKS = ("require_mail", "saw_the_same", "require_no_island", "require_one_view")
"""What the first version did not check."""


def forget(monkeypatch: Any, *checks: str) -> None:
    """Let devices check something no more."""
    for name in checks:
        gullible = _believe if name == "saw_the_same" else _ignore
        monkeypatch.setattr(f"crowdml.secure_aggregation.checks.{name}", gullible)


def _ignore(*_: Any) -> None:
    """Check nothing."""


def _believe(tags: Items, _: Items) -> tuple[bool, ...]:
    """Believe every neighbour that it saw the same sharers."""
    return (True,) * len(tags)


def as_at_first(monkeypatch: Any) -> None:
    """Make devices as gullible as those of the first version."""
    forget(monkeypatch, *CHECKS)
    monkeypatch.setattr("crowdml.secure_aggregation.sum_terms.make_graph", first_graph)
