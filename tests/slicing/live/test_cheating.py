"""Members that are idle, accuse others or show false deposits, and servers that set weights: each is bounded."""

from __future__ import annotations

import dataclasses
import os

import pytest

from crowdml.core.errors import MalformedMessage, NotAuthorised
from crowdml.slicing.live import controls as say
from crowdml.slicing.live.deposits import owner_of, seal_deposit
from crowdml.slicing.live.group_records import MOST_ATTEMPTS
from crowdml.slicing.live.held_cut import HeldCut, Shown
from crowdml.slicing.live.member_guard import MOST_SEEN
from crowdml.slicing.live.slice_frames import HEADER_BYTES, read_header
from tests.support.group_bench import GroupBench, new_group
from tests.support.group_courses import TERMS, make_terms
from tests.support.sliced_nets import model_of, plan_of


def test_who_is_waited_for_and_waits_for_nobody_is_lost() -> None:
    """A follower that answers but does not work leaves its place, else the turn never moves."""
    bench = GroupBench()
    group = bench.group
    dominator, lazy, *rest = group.assignment
    before = group.attempt
    asked = group.handle(dominator, bench.stalled(lazy))
    assert {number for number, _ in asked} == {lazy, *rest}
    for other in rest:
        group.handle(other, bench.stalled(lazy))
    out = group.handle(lazy, bench.stalled())
    assert lazy not in group.assignment and group.assignment[0] == dominator
    assert any(number == lazy and isinstance(told, say.Stop) and told.again for number, told in out)
    assert group.attempt > before


def test_nobody_is_lost_where_everybody_waits() -> None:
    bench = GroupBench()
    group, before = bench.group, bench.group.attempt
    owners = group.assignment
    for member, other in zip(owners, owners[1:] + owners[:1], strict=True):
        group.handle(member, bench.stalled(other))
    assert group.assignment == owners and group.attempt > before
    assert any(event.what == "stalled" for event in group.events)


def test_a_member_waits_until_all_parts_of_a_batch_have_come() -> None:
    """Two parts forward are not one forward and one backward."""
    plan = plan_of(model_of(), 2, micro_batches=2)
    bench = GroupBench(make_terms(plan=plan))
    dominator = bench.group.assignment[0]
    receiver = read_header(bench.between[0]).receiver
    theirs = [frame for frame in bench.between if read_header(frame).receiver == receiver]
    assert [read_header(frame).micro for frame in theirs] == [0, 1]
    member = bench.members[receiver]
    for frame in theirs:
        member.handle(frame)
        (said,) = member.late()
        assert isinstance(said, say.Stalled) and dominator in said.waits_for


def _prepared(bench: GroupBench, number: int) -> say.Prepare:
    """Return what the server would say to a member next."""
    out = bench.group._again()
    return next(told for to, told in out if to == number and isinstance(told, say.Prepare))


def test_a_dominator_bounds_the_attempts_of_its_turn_by_itself() -> None:
    """Each attempt may show its rows to another member: a server that cheats does not keep its own bound."""
    bench = GroupBench()
    dominator = bench.group.assignment[0]
    prepare = _prepared(bench, dominator)
    assert MOST_ATTEMPTS < MOST_SEEN
    for more in range(MOST_SEEN - 1):
        bench.members[dominator].handle(prepare.model_copy(update={"attempt": prepare.attempt + more}))
    with pytest.raises(NotAuthorised, match="more than 200 times"):
        bench.members[dominator].handle(prepare.model_copy(update={"attempt": prepare.attempt + MOST_SEEN}))


def test_the_server_ends_a_turn_with_too_many_attempts() -> None:
    bench = GroupBench()
    turn = bench.group.turn
    for _ in range(MOST_ATTEMPTS):
        bench.group._again()
    assert bench.group.turn > turn
    assert any(event.what == "too many attempts" for event in bench.group.events)


def test_who_saw_sums_is_counted_by_server_and_owner_alike() -> None:
    bench = GroupBench()
    bench.run_to_a_cut()
    seen = {number: len(member.guard.observers) for number, member in bench.members.items()}
    assert any(seen.values())
    told = {number: len(of) for number, of in bench.group.trust.observers.items()}
    assert {number: count for number, count in seen.items() if count} == {
        number: count for number, count in told.items() if seen[number]
    }


def test_a_server_cannot_invent_a_member_beyond_the_size_of_a_group() -> None:
    bench = GroupBench()
    number = bench.group.assignment[0]
    prepare = _prepared(bench, number)
    stranger = GroupBench().card(1)
    cards = prepare.cards | {"77": say.CardText.of(stranger)}
    with pytest.raises(NotAuthorised, match="5 members"):
        bench.members[number].handle(prepare.model_copy(update={"cards": cards}))


def test_a_server_cannot_set_weights_in_the_middle_of_a_pass() -> None:
    bench = GroupBench()
    bench.run_to_a_cut()
    number = bench.group.assignment[1]
    prepare = _prepared(bench, number)
    assert prepare.cut is not None and not prepare.download
    with pytest.raises(NotAuthorised, match="set weights in the middle of a pass"):
        bench.members[number].handle(prepare.model_copy(update={"download": True}))
    with pytest.raises(MalformedMessage, match="no weights at all"):
        bench.members[number].handle(prepare.model_copy(update={"cut": None}))
    with pytest.raises(MalformedMessage, match="in pass 1"):
        bench.members[number].handle(prepare.model_copy(update={"passes": 1, "download": True}))
    assert bench.members[number].guard.passes_again == 0
    bench.members[number].handle(prepare.model_copy(update={"cut": None, "download": True}))
    assert bench.members[number].guard.passes_again == 1


def test_one_member_cannot_empty_a_group_by_complaints() -> None:
    """Whoever is complained of is out; who complains a second time is out with it."""
    bench = GroupBench()
    group = bench.group
    liar, first, *_ = group.assignment
    bench.deliver(group.handle(liar, bench.complaint(first)))
    assert group.trust.banned == {first} and liar in group.assignment
    second = next(member for member in group.assignment if member != liar)
    bench.deliver(group.handle(liar, bench.complaint(second)))
    assert group.trust.banned == {first, second, liar}
    assert len(group.present) == 2
    group.deal_anew()
    assert not group.trust.banned


def _restarted(bench: GroupBench, bad: bytes, liar: int) -> None:
    """Start the server again, let one member show a false deposit first, and go on."""
    cut = bench.group.cut
    shown = {number: bench.deposits(number) for number in bench.members}
    bench.group, bench.between = new_group(incarnation=2), []
    for number in sorted(bench.members, key=lambda each: each != liar):
        more = [bad] if number == liar else []
        bench.deliver(bench.group.joined(number, bench.card(number), more + shown[number]))
    assert bench.group.cut is not None and cut is not None and bench.group.cut.place == cut.place
    assert bench.group.stage == "running"
    assert not any(event.what == "pass again" for event in bench.group.events)


def _shown(bench: GroupBench) -> list[Shown]:
    """Return what members show again of pieces that they have sealed themselves."""
    cut = bench.group.cut
    assert cut is not None
    found = [
        (bench.card(number).fresh, frame)
        for number in bench.members
        for frame in bench.deposits(number)
        if read_header(frame).batch == cut.batch
    ]
    return [Shown(fresh=key, header=read_header(of), frame=of) for key, of in found if owner_of(of) == key]


def _stood_by(bench: GroupBench) -> int:
    """Return a member that had no piece at the cut."""
    sealers = {each.fresh for each in _shown(bench)}
    return next(number for number in bench.members if bench.card(number).fresh not in sealers)


@pytest.mark.parametrize("how", ["cut off", "altered", "sealed by the liar"])
def test_a_bad_deposit_does_not_displace_a_good_one(how: str) -> None:
    """After a restart one member shows a false deposit of another's piece: the group goes on from the good one."""
    bench = GroupBench()
    bench.run_to_a_cut()
    good, liar = _shown(bench)[0].frame, _stood_by(bench)
    bad = {
        "cut off": lambda: good[:HEADER_BYTES] + os.urandom(len(good) - HEADER_BYTES),
        "altered": lambda: good[:-1] + bytes([good[-1] ^ 1]),
        "sealed by the liar": lambda: _forged(bench, liar, good),
    }[how]()
    _restarted(bench, bad, liar)


def _forged(bench: GroupBench, liar: int, good: bytes) -> bytes:
    keys = bench.members[liar]._keys
    others = [bench.card(number).fresh for number in bench.members if number != liar]
    raw = bytes(TERMS.plan.piece_bytes(read_header(good).piece - 1))
    return seal_deposit(keys, read_header(good)._replace(sender=liar), others, raw, os.urandom(48))


def test_deposits_that_nobody_can_go_on_with_make_way_for_others() -> None:
    bench = GroupBench()
    bench.run_to_a_cut()
    held, shown = HeldCut(TERMS.plan), _shown(bench)
    piece = shown[0].header.piece - 1
    altered = shown[0].frame[:-1] + b"\0"
    assert held.restore([dataclasses.replace(shown[0], frame=altered), *shown], lambda turn, batch: True)
    taker = bench.card(_stood_by(bench)).fresh
    assert held.pieces[piece] == altered and held.can_have(piece, taker)
    held.refuse(piece, taker)
    assert held.pieces[piece] == shown[0].frame and held.can_have(piece, taker)
    held.refuse(piece, taker)
    assert not held.can_have(piece, taker)
