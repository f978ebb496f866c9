"""Owners that know their piece and what they are told end with the bits of all pieces in one process."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdml.core import NUMPY, trees
from crowdml.core.errors import MalformedMessage
from crowdml.models import Model
from crowdml.simulation.slices.sliced import first_parameters
from crowdml.slicing import DOMINATOR, cost_graph, cut, sliced_net
from crowdml.slicing.number_formats import NUMBERS, Numbers
from crowdml.slicing.piece_owner import PieceOwner, Plan, Told
from crowdml.slicing.piece_state import PieceState, piece_layout, tied_numbers
from crowdml.slicing.sliced_net import batch_gradients
from crowdml.slicing.training import as_batch, take_step
from tests.slicing.conftest import net
from tests.support.sliced_nets import put_piece, take_piece

RATE = 0.1
SPLIT = """
kind = "layers"
shape = [8, 8, 2]
layers = [
  { kind = "convolution", size = 3, kernel = 3 },
  { kind = "relu" },
  { kind = "pooling", size = 2 },
  { kind = "convolution", size = 4, kernel = 3, connections = 2 },
  { kind = "tanh" },
  { kind = "pooling", of = "average", size = 2 },
  { kind = "flatten" },
  { kind = "dense", size = 9 },
  { kind = "relu" },
  { kind = "dense", size = 3 },
]
"""


@pytest.fixture(scope="module")
def split() -> Model:
    """A convolutional net whose channels are shared out row by row, so that filters have several owners."""
    return net(128, SPLIT)


def plan_of(model: Model, pieces: int, slicer: str = "in-order", numbers: Numbers = "float32", **more: Any) -> Plan:
    graph = cost_graph(model)
    balance = 3.0 if slicer == "in-order" and len(graph.costs) < 200 else 1.2
    if slicer == "by chance":
        made = np.random.default_rng(pieces).permutation(np.arange(len(graph.costs)) % pieces)
    else:
        made = cut(graph, pieces, slicer, balance)
    return Plan(net=sliced_net(model, made, graph, numbers), like=model.zeros(), **more)


def another(plan: Plan) -> Plan:
    """Work the same plan out again: owners share no object."""
    made = sliced_net(plan.net.model, np.array(plan.net.pieces), numbers=plan.net.numbers)
    return replace(plan, net=made)


def batches_of(model: Model, sizes: tuple[int, ...]) -> list[tuple[Any, Any]]:
    generator = np.random.default_rng(3)
    return [
        (
            generator.random((size, model.features), dtype=np.float32),
            generator.integers(0, model.loss.width, size),
        )
        for size in sizes
    ]


def together(plan: Plan, parameters: Any, batches: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Train with all pieces in one process."""
    parameters = trees.map(np.array, parameters)
    matters = trees.map(np.zeros_like, parameters)
    for rows, labels in batches:
        found = batch_gradients(
            plan.net,
            parameters,
            as_batch(rows, labels),
            micro_batches=plan.micro_batches,
            normalisation=plan.normalisation,
        )
        take_step(parameters, matters, found.gradient, np.float32(RATE))
    return parameters, matters


class Post:
    """Carries bytes between owners, which share no object, in an order of its own."""

    def __init__(self, plans: list[Plan], parameters: Any, seed: int = 0) -> None:
        nothing = trees.map(np.zeros_like, parameters)
        self.numbers = NUMBERS[plans[0].net.numbers]
        self.coins, self.sent_bytes, self.wire = random.Random(seed), 0, list[tuple[tuple[Any, ...], bytes]]()
        self.owners: dict[int, PieceOwner] = {}
        for owner, plan in enumerate(plans, start=DOMINATOR):
            layout = piece_layout(plan.net, plan.like, owner)
            deposit = take_piece(parameters, nothing, layout).to_bytes()
            self.owners[owner] = PieceOwner(plan, owner, PieceState.from_bytes(deposit, layout), RATE)

    def post(self, said: list[Told]) -> None:
        for told in said:
            header = (told.kind, told.stage, told.batch, told.micro, told.rows, told.sender, told.receiver)
            written = NUMBERS["float32"] if told.kind == "tied" else self.numbers
            self.wire.append((header, written.encode(told.numbers)))
            self.sent_bytes += len(self.wire[-1][1]) if told.kind != "tied" else 0

    def deliver(self) -> None:
        """Deliver everything, and what follows from it."""
        while self.wire:
            (kind, stage, batch, micro, rows, sender, receiver), content = self.wire.pop(
                self.coins.randrange(len(self.wire))
            )
            owner = self.owners[receiver]
            shape = owner.shape(kind, stage, micro, rows, sender)
            read = NUMBERS["float32"] if kind == "tied" else self.numbers
            told = Told(
                kind=kind,
                stage=stage,
                batch=batch,
                micro=micro,
                rows=rows,
                sender=sender,
                receiver=receiver,
                numbers=read.decode(content, *shape),
            )
            self.post(owner.hear(told))

    def hand_over(self) -> None:
        """Let other objects take all pieces over, from their bytes."""
        for number, owner in self.owners.items():
            assert owner.at_rest
            content = owner.state.to_bytes()
            self.owners[number] = PieceOwner(
                owner.plan, number, PieceState.from_bytes(content, owner.layout), float(owner.rate)
            )

    def learnt(self, like: Any) -> tuple[Any, Any]:
        """Put all pieces together; of what several owners have they must have the same."""
        parameters, matters = trees.map(np.array, like), trees.map(np.zeros_like, like)
        for owner in self.owners.values():
            put_piece(owner.state, owner.layout, parameters, matters)
        for owner in self.owners.values():
            again = take_piece(parameters, matters, owner.layout, owner.batches)
            assert again.to_bytes() == owner.state.to_bytes()
        return parameters, matters


def apart(plans: list[Plan], parameters: Any, batches: list[tuple[Any, Any]], seed: int = 0) -> Post:
    post = Post(plans, parameters, seed)
    for number, (rows, labels) in enumerate(batches):
        if number == 1:
            post.hand_over()
        post.post(post.owners[DOMINATOR].begin(rows, labels))
        post.deliver()
    assert all(owner.at_rest and owner.batches == len(batches) for owner in post.owners.values())
    return post


def assert_same_bits(left: Any, right: Any) -> None:
    for one, other in zip(left, right, strict=True):
        for path, (mine, theirs) in zip(
            (path for path, _ in trees.paths(one)),
            zip(trees.leaves(one), trees.leaves(other), strict=True),
            strict=True,
        ):
            assert mine.tobytes() == theirs.tobytes(), path


def compare(model: Model, pieces: int, sizes: tuple[int, ...], slicer: str = "in-order", **more: Any) -> None:
    parameters, batches = first_parameters(model, 0, 0), batches_of(model, sizes)
    plan = plan_of(model, pieces, slicer, **more)
    plans = [plan, *(another(plan) for _ in range(pieces))]
    post = apart(plans, parameters, batches)
    assert_same_bits(post.learnt(parameters), together(plans[0], parameters, batches))


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize(("pieces", "slicer"), [(1, "in-order"), (5, "in-order"), (3, "metis"), (4, "by chance")])
def test_a_plain_net(plain: Model, pieces: int, slicer: str, micro_batches: int) -> None:
    """The last batches have few rows: products with a vector have bits of their own."""
    compare(plain, pieces, (10, 10, 3, 1), slicer, micro_batches=micro_batches)


@pytest.mark.parametrize(("micro_batches", "normalisation"), [(1, "exact"), (4, "pipelined"), (4, "exact")])
def test_the_papers_net_with_batch_normalisation(mlp: Model, micro_batches: int, normalisation: str) -> None:
    compare(mlp, 5, (50, 50, 7), micro_batches=micro_batches, normalisation=normalisation)


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("pieces", [1, 3, 4])
def test_every_kind_of_layer(small: Model, pieces: int, micro_batches: int) -> None:
    compare(small, pieces, (6, 6, 2), micro_batches=micro_batches, normalisation="pipelined")


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize(("pieces", "slicer"), [(5, "in-order"), (3, "by chance"), (6, "by chance")])
def test_filters_of_several_owners(split: Model, pieces: int, slicer: str, micro_batches: int) -> None:
    plan = plan_of(split, pieces, slicer)
    tied = [tied_numbers(plan.net, plan.like, owner) for owner in range(pieces)]
    assert any(tied) and any(plan.net.split)
    compare(split, pieces, (6, 6, 5, 1), slicer, micro_batches=micro_batches)


@pytest.mark.parametrize("numbers", ["bfloat16", "int8"])
def test_numbers_that_are_rounded_on_their_way(plain: Model, split: Model, numbers: Numbers) -> None:
    for model in (plain, split):
        compare(model, 3, (8, 8, 3), numbers=numbers)
        exact, rounded = (plan_of(model, 3, numbers=each) for each in ("float32", numbers))
        parameters, batches = first_parameters(model, 0, 0), batches_of(model, (8,))
        with pytest.raises(AssertionError):
            assert_same_bits(together(exact, parameters, batches), together(rounded, parameters, batches))


@pytest.mark.parametrize("numbers", ["float32", "bfloat16", "int8"])
def test_bytes_are_those_of_the_table(mlp: Model, numbers: Numbers) -> None:
    from crowdml.slicing import costs

    plan = plan_of(mlp, 5, numbers=numbers)
    post = apart([plan] * 6, first_parameters(mlp, 0, 0), batches_of(mlp, (50,)))
    found = costs(plan.net.graph, plan.net.pieces)
    messages = 2 * sum(sender != receiver for of_stage in plan.net.crossing for sender, receiver in of_stage)
    numbers_only = post.sent_bytes - 50 * messages * NUMBERS[numbers].scale_size
    assert numbers_only / 50 == 2 * found.crossing * NUMBERS[numbers].size


def test_the_order_in_which_messages_arrive_does_not_matter(split: Model) -> None:
    parameters, batches = first_parameters(split, 0, 0), batches_of(split, (5, 5))
    plans = [plan_of(split, 4, "by chance", micro_batches=2)] * 5
    first, *others = (apart(plans, parameters, batches, seed).learnt(parameters) for seed in range(4))
    for other in others:
        assert_same_bits(first, other)


def test_released_sums_go_out_instead_and_the_first_layer_stays(plain: Model) -> None:
    parameters, batches = first_parameters(plain, 0, 0), batches_of(plain, (6, 6))
    plan = plan_of(plain, 3, released=True)
    sent = [np.random.default_rng(at).random((8, 6), dtype=np.float32) for at in range(2)]
    post = Post([plan] * 4, parameters)
    known, matters = trees.map(np.array, parameters), trees.map(np.zeros_like, parameters)
    for (rows, labels), columns in zip(batches, sent, strict=True):
        post.post(post.owners[DOMINATOR].begin(rows, labels, columns))
        post.deliver()
        found = plan.net.gradients(
            known, as_batch(rows, labels), functools.partial(lambda sums, _: sums, columns)
        ).gradient
        take_step(known, matters, ({}, *found[1:]), np.float32(RATE))
    assert_same_bits(post.learnt(parameters), (known, matters))
    assert np.array_equal(known[0]["w"], parameters[0]["w"]) and not np.array_equal(known[2]["w"], parameters[2]["w"])


def test_what_nobody_would_tell_is_refused(plain: Model) -> None:
    plan, parameters = plan_of(plain, 2), first_parameters(plain, 0, 0)
    post = Post([plan] * 3, parameters)
    told = post.owners[DOMINATOR].begin(*batches_of(plain, (4,))[0])[0]
    owner = post.owners[told.receiver]
    wrong = [
        replace(told, batch=2),
        replace(told, stage=7),
        replace(told, micro=1),
        replace(told, rows=0),
        replace(told, rows=5),
        replace(told, sender=told.receiver),
        replace(told, kind="tied"),
        replace(told, numbers=told.numbers[1:]),
    ]
    for each in wrong:
        with pytest.raises(MalformedMessage):
            owner.hear(each)
    owner.hear(told)
    with pytest.raises(MalformedMessage, match="twice"):
        owner.hear(told)
    with pytest.raises(ValueError, match="only a dominator"):
        owner.begin(*batches_of(plain, (4,))[0])


def test_a_piece_is_checked_before_it_is_used(plain: Model) -> None:
    plan, parameters = plan_of(plain, 2), first_parameters(plain, 0, 0)
    layout = piece_layout(plan.net, plan.like, 0)
    content = take_piece(parameters, trees.map(np.zeros_like, parameters), layout, 3).to_bytes()
    assert PieceState.from_bytes(content, layout).to_bytes() == content
    infinite = bytearray(content)
    infinite[-4:] = np.float32(np.inf).tobytes()
    below = bytearray(content)
    below[-4:] = np.float32(-1).tobytes()
    other = piece_layout(plan.net, plan.like, 1)
    for wrong, expected in (
        (content[:-1], layout),
        (content[:9], layout),
        (b"x" + content[1:], layout),
        (bytes(infinite), layout),
        (bytes(below), layout),
        (content, other),
    ):
        with pytest.raises(MalformedMessage):
            PieceState.from_bytes(wrong, expected)


def test_every_number_is_in_a_piece(small: Model, split: Model) -> None:
    for model in (small, split):
        plan = plan_of(model, 4)
        nan = trees.map(lambda leaf: np.full_like(leaf, np.nan), model.zeros())
        zeros = trees.map(np.zeros_like, plan.like)
        for owner in range(DOMINATOR, 4):
            layout = piece_layout(plan.net, plan.like, owner)
            put_piece(take_piece(zeros, zeros, layout), layout, nan, zeros)
        assert all(np.isfinite(leaf).all() for leaf in trees.leaves(nan))
    assert small.ops is NUMPY
