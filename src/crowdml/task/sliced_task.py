"""A task whose net is cut into pieces, as groups of devices run it."""

from __future__ import annotations

from typing import Any

from crowdml.core import NUMPY, BadInput
from crowdml.slicing import SlicedNet, cost_graph, cut, sliced_net
from crowdml.slicing.live.slice_plan import slice_plan
from crowdml.slicing.live.slice_terms import SliceTerms
from crowdml.slicing.piece_messages import Plan
from crowdml.task.task import Task

LARGEST_FRAME = 32 << 20
"""Bytes of a message through the relay at most; the deposit of a piece is the largest."""


def sliced_net_of(task: Task) -> SlicedNet:
    """Cut the model of a task into the pieces that its settings ask for."""
    settings, model = task.algorithm, task.model_for(NUMPY)
    graph = cost_graph(model)
    try:
        pieces = cut(graph, settings.pieces, settings.slicer, settings.balance)
    except BadInput as error:
        # A slicer names its argument; whoever runs a task looks for a key of its file.
        raise BadInput(error.what, where=f"algorithm.{error.where}", hint=error.hint) from None
    return sliced_net(model, pieces, graph, settings.numbers)


def sliced_terms(task: Task) -> SliceTerms:
    """Return what groups of a task agree on; its hash is put in by whoever knows it. Refuse what cannot run live."""
    settings = task.algorithm
    if settings.pieces < 1:
        raise BadInput(
            "between devices a group has at least one follower", where="algorithm.pieces", hint="such as pieces = 3"
        )
    for name in ("cut_noise", "upload_noise"):
        if getattr(settings, name):
            raise BadInput(
                "noise on what crosses a cut exists in simulation only",
                where=f"algorithm.{name.replace('_', '-')}",
                hint="leave it out: a live group has no formal guarantee",
            )
    net = sliced_net_of(task)
    plan = slice_plan(
        Plan(
            net=net,
            like=net.model.zeros(),
            micro_batches=settings.micro_batches,
            normalisation=settings.normalisation,
        )
    )
    largest = max(plan.piece_bytes(owner) for owner in plan.owners)
    if largest > LARGEST_FRAME - (1 << 20):
        raise BadInput(
            f"a piece has {largest} bytes; the relay takes {LARGEST_FRAME >> 20} MiB at once",
            where="algorithm.pieces",
            hint="cut the net into more pieces, or make it smaller",
        )
    return SliceTerms(
        task_hash="",
        plan=plan,
        batch=settings.batch,
        rate=settings.rate,
        decay=settings.decay,
        theta=settings.theta,
        tau=settings.tau,
        passes=task.stop.max_releases or task.passes,
        dummies=settings.dummies,
        named=settings.members == "named",
        shuffle=settings.shuffle,
        cut_every=settings.cut_every,
    )


def definition_of_stop(task: Task) -> dict[str, Any]:
    """Return what is signed of the end of a task: a group makes as many passes as the simulated crowd does."""
    return {"max-releases": task.stop.max_releases or task.passes}
