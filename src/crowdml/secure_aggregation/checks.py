"""What a device checks before it goes on: each rule closes one way in which a server could read one member's vector.

A device believes nothing that the server says of others. It works all numbers out from the signed terms, and takes part
only if what it is shown fits together. Why these rules are enough: docs/decisions/0007-one-view.md.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from crowdml.core.errors import MalformedMessage, NotAuthorised, TermsViolated
from crowdml.secure_aggregation.commitments import is_link
from crowdml.secure_aggregation.graph import Graph, Places, fewest_in_two
from crowdml.secure_aggregation.member_keys import require_canonical
from crowdml.secure_aggregation.roster import BroadcastHash, Roster
from crowdml.secure_aggregation.stages import SumAborted
from crowdml.secure_aggregation.sum_messages import Flags, Items, Mail
from crowdml.secure_aggregation.sum_terms import SumTerms


def require_roster(roster: Roster, terms: SumTerms, version: int, attempt: int) -> None:
    """Refuse a roster of another sum, of too few or too many, or with somebody in it twice."""
    if (roster.version, roster.attempt) != (version, attempt):
        raise TermsViolated("the roster is that of another sum")
    for public in (*roster.fresh, *(card.lasting for card in roster.cards)):
        require_canonical(public)
    ascending = all(a < b for a, b in zip(roster.slots, roster.slots[1:], strict=False))
    lists = (
        roster.fresh,
        roster.tips,
        [card.lasting for card in roster.cards],
        [card.identity for card in roster.cards],
    )
    if not ascending or any(len(set(listed)) < len(listed) for listed in lists):
        raise NotAuthorised("a member stands in the roster twice, or two have the same key or identity")
    require_enough(len(roster.slots), terms)


def require_enough(members: int, terms: SumTerms) -> None:
    """Refuse a roster of too few or too many."""
    if not terms.least <= members <= terms.invited:
        raise SumAborted(f"{members} members, where {terms.least} to {terms.invited} may be")


def require_broadcast(roster: Roster, terms: SumTerms, mine: BroadcastHash) -> None:
    """Refuse a roster whose members were shown another model than this one for the same version."""
    versions = [broadcast.version for broadcast in roster.broadcasts]
    right = all(0 <= roster.version - version <= terms.delays for version in versions)
    if not right or versions != sorted(set(versions)):
        raise TermsViolated("the roster names broadcasts of versions that no member may have begun with")
    if mine not in roster.broadcasts:
        raise TermsViolated("the server shows other members another model or task than this device: nothing is summed")


def require_links(roster: Roster, links: Items, layer: int) -> None:
    """Refuse an order that somebody has not opened as committed to."""
    for link, tip in zip(links, roster.tips, strict=True):
        if link is None or not is_link(link, layer, tip):
            raise TermsViolated("a member's part in the order is not the one that it had committed itself to")


def require_mail(mail: Mail, terms: SumTerms, graph: Graph, me: int, neighbours: Sequence[int]) -> None:
    """Refuse mail that is not from every neighbour that has shared, and from nobody else."""
    if not mail.sharers[me]:
        raise TermsViolated("this member is not among those who have shared")
    if int(mail.sharers.sum()) < terms.least:
        raise SumAborted(f"{int(mail.sharers.sum())} members have shared, {terms.least} are needed")
    shared = [bool(mail.sharers[at]) for at in neighbours]
    if shared != [parcel is not None for parcel in mail.parcels]:
        raise TermsViolated("mail is withheld, or comes from a neighbour that has not shared: a mask would be missing")
    if sum(shared) < graph.threshold:
        raise SumAborted(f"{sum(shared)} neighbours are left, {graph.threshold} are needed")


def require_survivors(survivors: Flags, sharers: Flags, terms: SumTerms, me: int) -> None:
    """Refuse survivors that are too few, never shared, or do not include this member."""
    if not survivors[me]:
        raise TermsViolated("this member is not among the survivors: it has nothing to reveal")
    if (survivors & ~sharers).any():
        raise TermsViolated("a survivor never shared its secrets")
    if int(survivors.sum()) < terms.least:
        raise SumAborted(f"{int(survivors.sum())} survivors, {terms.least} are needed")


def saw_the_same(tags: Items, expected: Items) -> tuple[bool, ...]:
    """Tell for each neighbour whether it has survived and saw the same sharers, and so masked with all of them.

    Of one that did not, or does not say so, no share of its own mask is given: it may lack a mask. That is no reason to
    give up, or one corrupt member could make others pay for nothing.
    """
    return tuple(
        right is not None and tag is not None and hmac.compare_digest(tag, right)
        for tag, right in zip(tags, expected, strict=True)
    )


def require_no_island(order: Places, survivors: Flags, graph: Graph, neighbours: Sequence[int]) -> None:
    """Refuse survivors among whom a part could be cut off, or too few to give secrets back."""
    if int(survivors[list(neighbours)].sum()) < graph.threshold:
        raise SumAborted("too few neighbours have survived")
    if not graph.complete and (fewest := fewest_in_two(order, survivors, graph)) < graph.window:
        raise SumAborted(
            f"two stretches of {graph.reach} places hold {fewest} survivors, {graph.window} are needed: those between "
            "them could be a sum of their own"
        )


def require_one_view(agreeing: int, graph: Graph) -> None:
    """Refuse to reveal anything unless so many saw the same that no two views can both be seen by so many."""
    if agreeing < graph.agreeing:
        raise SumAborted(
            f"{agreeing} members saw the same survivors, {graph.agreeing} are needed: others were shown another set, "
            "or too few are left"
        )


def require_link_left(layer: int, layers: int) -> None:
    """Give up where everybody should open once more and the chain has ended."""
    if layer >= layers:
        raise SumAborted(f"after {layers} tries somebody still does not open its part in the order")


def require_length(found: int, expected: int) -> None:
    """Refuse a list that is not as long as the roster makes it."""
    if found != expected:
        raise MalformedMessage("the message does not have the length that terms and roster give it")
