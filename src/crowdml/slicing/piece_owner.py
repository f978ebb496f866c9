"""One owner's arithmetic: what the holder of a piece computes from what it is told, without knowing anything else.

A dominator lets a batch in with `begin`; everybody then answers each `Told` by those that follow from it, in whatever
order they arrive. Parts of a sum are added in the order of pieces once all are there. When an owner has its gradient
from all micro-batches it makes its step. A filter of a split channel has several owners: they tell each other what they
found (`tied`), and each adds it up in the order of pieces. So owners apart from each other end with the bits of
`SlicedNet` in one process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from crowdml.core import Array
from crowdml.core.errors import MalformedMessage
from crowdml.core.ops import Tree
from crowdml.slicing.cost_graph import DOMINATOR
from crowdml.slicing.own_layers import OwnLayers, own_layers
from crowdml.slicing.parts import ConvolutionPart, Part
from crowdml.slicing.piece_messages import Kind as Kind
from crowdml.slicing.piece_messages import Plan as Plan
from crowdml.slicing.piece_messages import Told as Told
from crowdml.slicing.piece_state import Leaf, PieceState, piece_layout, tied_numbers
from crowdml.slicing.sliced_net import weighted_mean
from crowdml.slicing.stages import Indices
from crowdml.slicing.training import step

Heard = dict[tuple[int, int], dict[int, Array | None]]
"""For a micro-batch and a stage what each has told; None once it was used."""


class PieceOwner:
    """The holder of a piece, from one batch to the next."""

    def __init__(self, plan: Plan, owner: int, state: PieceState, rate: float) -> None:
        """Take a piece over; DOMINATOR stands for inputs and outputs."""
        net = plan.net
        self.plan, self.owner, self.rate, self.batches = plan, owner, np.float32(rate), state.batches
        self.layout = piece_layout(net, plan.like, owner)
        self._leaves: dict[tuple[int, str], Array] = {}
        self._importance: dict[int, Array] = {}
        self._load(state)
        self._stages = [own_layers(net, at, owner) for at in range(len(net.graph.stages))]
        # A part that reaches no sum has nothing to do.
        self._parts = [_of(parts, owner) if self._receivers(at) else None for at, parts in enumerate(net.parts)]
        self._tied = tied_numbers(net, plan.like, owner)
        self._due = {("sums", at) for at, owned in enumerate(self._stages) if owned}
        self._due |= {("part", at) for at, part in enumerate(self._parts) if part}
        self._later: list[Told] = []
        self._forget()

    @property
    def state(self) -> PieceState:
        """The piece as it is between two batches."""
        return PieceState(
            numbers=np.concatenate(
                [np.zeros(0, np.float32), *(self._leaves[leaf.layer, leaf.name] for leaf in self.layout)]
            ),
            importance=np.concatenate(
                [np.zeros(0, np.float32), *(self._importance[leaf.layer] for leaf in self.layout if leaf.name == "w")]
            ),
            batches=self.batches,
        )

    @property
    def at_rest(self) -> bool:
        """Whether no batch is under way."""
        return not (self._forward_heard or self._inputs or self._finished or self._targets or self._later)

    def shape(self, kind: Kind, stage: int, micro: int, rows: int, sender: int) -> tuple[int, int]:
        """Return the shape of the matrix that somebody may tell. Raises MalformedMessage where nobody would."""
        sizes = self.plan.sizes(rows) if 0 < rows else []
        lines = {
            "forward": lambda: self._sums_of(stage, sender, self.owner),
            "backward": lambda: self._sums_of(stage, self.owner, sender),
            "tied": lambda: self._tied.get(sender),
        }[kind]()
        if lines is None or not len(lines) or not 0 <= micro < len(sizes) or sender == self.owner:
            raise MalformedMessage(f"piece {self.owner} is told nothing of kind {kind} by piece {sender} at {stage}")
        return (len(lines), 1) if kind == "tied" else (len(lines), sizes[micro])

    def begin(self, rows: Array, targets: Array, released: Array | None = None) -> list[Told]:
        """Let a batch in, as the dominator. With noise on the first cut `released` is sent: one column per row."""
        if self.owner != DOMINATOR or not self.at_rest or (released is not None) != self.plan.released:
            raise ValueError(
                "only a dominator between two batches lets one in, with released sums where there are some"
            )
        said, at, size = [], 0, len(targets)
        for micro, count in enumerate(self.plan.sizes(size)):
            some = slice(at, at + count)
            self._targets[micro] = targets[some]
            if released is not None:
                said += self._spread_released(micro, size, released[:, some])
            else:
                model = self.plan.net.model
                x = rows[some].T if len(model.shape) == 1 else rows[some].reshape(-1, *model.shape)
                before = [(number, model.layers[number]) for number in self.plan.net.graph.before]
                said += self._spread(0, micro, size, self._through(before, x, micro, count))
            at += count
        return said

    def first_sums(self, rows: Array) -> Array:
        """Return a dominator's sums of some rows, without any noise: a column for each row."""
        plan, count = self.plan, len(rows)
        part, model = self._parts[0], plan.net.model
        assert self.owner == DOMINATOR and part is not None  # noqa: S101  asked of dominators alone
        x = rows.T if len(model.shape) == 1 else rows.reshape(-1, *model.shape)
        for number in plan.net.graph.before:
            x, _ = model.layers[number].forward(self._parameters(number), x)
        kept = part.unpack(self._leaves[plan.net.graph.stages[0].linear, "w"])
        partial, _ = part.layer.forward(kept, self._seen(0, part, x))
        sums = np.zeros((math.prod(plan.net.graph.stages[0].sums), count), partial.dtype)
        for receiver in self._receivers(0):
            lines = self._crossing(0)[self.owner, receiver]
            sums[lines] = part.lines(partial, lines)
        return sums

    def hear(self, told: Told) -> list[Told]:
        """Answer what somebody tells. What belongs to the next batch waits until this one is finished."""
        if told.batch != self.batches:
            if told.batch != self.batches + 1:
                raise MalformedMessage(f"batch {told.batch} after {self.batches} batches")
            self._later.append(told)
            return []
        if told.numbers.shape != self.shape(told.kind, told.stage, told.micro, told.rows, told.sender):
            raise MalformedMessage(f"{told.kind} of shape {told.numbers.shape} from piece {told.sender}")
        if told.kind == "tied":
            return self._hear_tied(told.sender, told.rows, told.numbers[:, 0])
        heard = self._hear_forward if told.kind == "forward" else self._hear_backward
        return heard(told.stage, told.micro, told.rows, told.sender, told.numbers)

    def _load(self, state: PieceState) -> None:
        at, seen = 0, 0
        for leaf in self.layout:
            count = len(leaf.positions)
            self._leaves[leaf.layer, leaf.name] = np.array(state.numbers[at : at + count])
            at += count
            if leaf.name == "w":
                self._importance[leaf.layer] = np.array(state.importance[seen : seen + count])
                seen += count

    def _forget(self) -> None:
        """Begin a batch with an empty mind."""
        self._forward_heard: Heard = {}
        self._backward_heard: Heard = {}
        self._inputs: dict[tuple[int, int], Tree] = {}
        self._memories: dict[tuple[int, int], Tree] = {}
        self._gradients: dict[int, dict[tuple[int, str], Array]] = {}
        self._finished: dict[int, set[tuple[str, int]]] = {}
        self._targets: dict[int, Array] = {}
        self._own_gradient: dict[tuple[int, str], Array] | None = None
        self._tied_heard: dict[int, Array] = {}

    def _sums_of(self, stage: int, sender: int, receiver: int) -> Indices | None:
        crossing = self.plan.net.crossing
        return crossing[stage].get((sender, receiver)) if 0 <= stage < len(crossing) else None

    def _senders(self, stage: int) -> list[int]:
        return [part.owner for part in self.plan.net.parts[stage] if (part.owner, self.owner) in self._crossing(stage)]

    def _receivers(self, stage: int) -> list[int]:
        return sorted(receiver for sender, receiver in self._crossing(stage) if sender == self.owner)

    def _crossing(self, stage: int) -> dict[tuple[int, int], Indices]:
        return self.plan.net.crossing[stage]

    def _parameters(self, layer: int) -> Tree:
        return {name: leaf for (number, name), leaf in self._leaves.items() if number == layer}

    def _through(self, layers: Iterable[tuple[int, Any]], x: Array, micro: int, rows: int) -> Array:
        mask = np.ones(rows, np.float32)
        for number, layer in layers:
            parameters = self._parameters(number)
            x, self._memories[micro, number] = (
                layer.learn(parameters, x, mask) if layer.learn else layer.forward(parameters, x)
            )
        return x

    def _spread(self, stage: int, micro: int, rows: int, x: Array) -> list[Told]:
        """Form partial sums from own inputs and tell them to their owners."""
        part = self._parts[stage]
        if part is None:
            # Nobody looks at what comes out of these sums: slopes are zero.
            return self._back_through(stage - 1, micro, rows, np.zeros_like(x))
        kept = part.unpack(self._leaves[self.plan.net.graph.stages[stage].linear, "w"])
        partial, memory = part.layer.forward(kept, self._seen(stage, part, x))
        self._inputs[micro, stage] = (memory, x.shape)
        said = []
        for receiver in self._receivers(stage):
            numbers = part.lines(partial, self._crossing(stage)[self.owner, receiver])
            said += self._tell("forward", stage, micro, rows, receiver, numbers)
        return said

    def _spread_released(self, micro: int, rows: int, released: Array) -> list[Told]:
        said = []
        for receiver in self._receivers(0):
            lines = self._crossing(0)[self.owner, receiver]
            said += self._tell("forward", 0, micro, rows, receiver, released[lines])
        return said

    def _seen(self, stage: int, part: Part, x: Array) -> Array:
        """Return what the part sees; the dominator has all inputs of the first stage."""
        if not stage:
            return part.see(x)
        if not isinstance(part, ConvolutionPart):
            return np.ascontiguousarray(x)
        return part.own(np.ascontiguousarray(x[..., self._places(stage, part)]))

    def _places(self, stage: int, part: ConvolutionPart) -> Indices:
        before = self._stages[stage - 1]
        assert before is not None  # noqa: S101  inputs come from own sums
        return np.searchsorted(before.channels, part.channels)

    def _tell(self, kind: Kind, stage: int, micro: int, rows: int, receiver: int, numbers: Array) -> list[Told]:
        """Tell another owner, or oneself."""
        if receiver == self.owner:
            heard = self._hear_forward if kind == "forward" else self._hear_backward
            return heard(stage, micro, rows, receiver, numbers)
        numbers, sender = np.ascontiguousarray(numbers), self.owner
        made = Told(
            kind=kind,
            stage=stage,
            batch=self.batches,
            micro=micro,
            rows=rows,
            sender=sender,
            receiver=receiver,
            numbers=numbers,
        )
        return [made]

    def _hear_forward(self, stage: int, micro: int, rows: int, sender: int, numbers: Array) -> list[Told]:
        owned, senders = self._owned(stage), self._senders(stage)
        parts = _gather(self._forward_heard, (micro, stage), sender, numbers, len(senders))
        if parts is None:
            return []
        x = None
        for other in senders:
            x = owned.add(x, owned.columns(self._crossing(stage)[other, self.owner]), parts[other])
        bias = self._leaves.get((owned.stage.linear, "b"))
        if bias is not None and not (self.plan.released and not stage):
            x += bias if len(owned.shape) > 1 else bias[:, None]
        x = self._through(owned.layers, x, micro, numbers.shape[1])
        if stage + 1 < len(self._stages):
            return self._spread(stage + 1, micro, rows, x)
        loss = self.plan.net.model.loss
        return self._back_through(stage, micro, rows, loss.slope(x, self._targets.pop(micro)).astype(x.dtype))

    def _owned(self, stage: int) -> OwnLayers:
        owned = self._stages[stage]
        assert owned is not None  # noqa: S101  nobody tells sums to one who owns none
        return owned

    def _weights(self, micro: int, rows: int) -> Array:
        mask = np.ones(self.plan.sizes(rows)[micro], np.float32)
        return mask / max(float(mask.sum()), 1.0)

    def _back_through(self, stage: int, micro: int, rows: int, slope: Array) -> list[Told]:
        """Go back through own layers of a stage, and tell slopes of its sums to all who sent a part."""
        owned, weights = self._owned(stage), self._weights(micro, rows)
        slope = self._layers_back(owned.layers, micro, slope, weights)
        if (owned.stage.linear, "b") in self._leaves and not (self.plan.released and not stage):
            ops = self.plan.net.model.ops
            pictures = len(owned.shape) > 1
            weighted = slope * (weights.reshape(-1, 1, 1, 1) if pictures else weights)
            self._found(micro)[owned.stage.linear, "b"] = ops.sum_each(weighted, (0, 1, 2) if pictures else (1,))
        said = []
        for sender in self._senders(stage):
            lines = owned.lines(slope, owned.columns(self._crossing(stage)[sender, self.owner]))
            said += self._tell("backward", stage, micro, rows, sender, lines)
        return said + self._finish(("sums", stage), micro, rows)

    def _layers_back(self, layers: Iterable[tuple[int, Any]], micro: int, slope: Array, weights: Array) -> Array:
        for number, layer in reversed(list(layers)):
            memory, parameters = self._memories.pop((micro, number)), self._parameters(number)
            if layer.factors:
                for name, total in layer.factors(parameters, memory, slope).total(weights).items():
                    self._found(micro)[number, name] = total
            if number:
                slope = layer.pull_back(parameters, memory, slope)
        return slope

    def _found(self, micro: int) -> dict[tuple[int, str], Array]:
        return self._gradients.setdefault(micro, {})

    def _hear_backward(self, stage: int, micro: int, rows: int, sender: int, numbers: Array) -> list[Told]:
        receivers = self._receivers(stage)
        slopes = _gather(self._backward_heard, (micro, stage), sender, numbers, len(receivers))
        if slopes is None:
            return []
        if self.plan.released and not stage:
            return self._finish(("part", 0), micro, rows)
        part, graph = self._parts[stage], self.plan.net.graph
        assert part is not None and part.layer.factors is not None  # noqa: S101  it has sent sums
        memory, shape = self._inputs.pop((micro, stage))
        told = [(self._crossing(stage)[self.owner, receiver], slopes[receiver]) for receiver in receivers]
        heard = part.together(told)
        linear, weights = graph.stages[stage].linear, self._weights(micro, rows)
        kept = part.unpack(self._leaves[linear, "w"])
        self._found(micro)[linear, "w"] = part.pack(part.layer.factors(kept, memory, heard).total(weights))
        said: list[Told] = []
        if stage:
            back = self._put_back(stage, part, part.layer.pull_back(kept, memory, heard), shape)
            said = self._back_through(stage - 1, micro, rows, back)
        elif any(self.plan.net.model.layers[number].factors for number in graph.before):
            into = np.zeros(shape, heard.dtype)
            part.put_back(part.layer.pull_back(kept, memory, heard), into)
            self._layers_back([(n, self.plan.net.model.layers[n]) for n in graph.before], micro, into, weights)
        return said + self._finish(("part", stage), micro, rows)

    def _put_back(self, stage: int, part: Part, slope: Array, shape: tuple[int, ...]) -> Array:
        if not isinstance(part, ConvolutionPart):
            return slope
        into = np.zeros(shape, slope.dtype)
        into[..., self._places(stage, part)] += part.own(slope)
        return into

    def _finish(self, what: tuple[str, int], micro: int, rows: int) -> list[Told]:
        """Note what is done of a micro-batch; after the last one add up, and make the step."""
        done = self._finished.setdefault(micro, set())
        done.add(what)
        sizes = self.plan.sizes(rows)
        if len(self._finished) < len(sizes) or any(each != self._due for each in self._finished.values()):
            return []
        shares = [size / max(sum(sizes), 1.0) for size in sizes]
        some = [self._gradients.get(at, {}) for at in range(len(sizes))]
        self._own_gradient = {
            name: weighted_mean([found[name] for found in some], shares) for name in (some[0] if some else {})
        }
        flat = _flat(self._own_gradient, self.layout)
        said = [self._tell("tied", 0, 0, rows, other, flat[both][:, None]) for other, both in self._tied.items()]
        return [told for each in said for told in each] + self._step_if_complete()

    def _hear_tied(self, sender: int, rows: int, numbers: Array) -> list[Told]:
        if sender in self._tied_heard:
            raise MalformedMessage(f"piece {sender} tells twice what it found")
        self._tied_heard[sender] = numbers
        return self._step_if_complete()

    def _step_if_complete(self) -> list[Told]:
        if self._own_gradient is None or len(self._tied_heard) < len(self._tied):
            return []
        gradient = self._own_gradient
        if self._tied:
            found = _flat(gradient, self.layout)
            total = np.zeros_like(found)
            for other in sorted((*self._tied, self.owner)):
                if other == self.owner:
                    total += found
                else:
                    total[self._tied[other]] += self._tied_heard[other]
            gradient = _cut(total, gradient, self.layout)
        for (layer, name), slope in gradient.items():
            matters = self._importance.get(layer) if name == "w" else None
            step(self._leaves[layer, name], slope, self.rate, name, matters)
        self.batches += 1
        self._forget()
        waiting, self._later = self._later, []
        return [answer for told in waiting for answer in self.hear(told)]


def _of(parts: Iterable[Part], owner: int) -> Part | None:
    return next((part for part in parts if part.owner == owner), None)


def _gather(heard: Heard, key: tuple[int, int], sender: int, numbers: Array, count: int) -> dict[int, Array] | None:
    """Keep what was told until all have told; then return it."""
    parts = heard.setdefault(key, {})
    if sender in parts:
        raise MalformedMessage(f"piece {sender} tells the same twice")
    parts[sender] = numbers
    if len(parts) < count:
        return None
    # Who has told stays known until the batch is over, the numbers do not.
    heard[key] = dict.fromkeys(parts)
    return parts


def _flat(gradient: dict[tuple[int, str], Array], layout: tuple[Leaf, ...]) -> Array:
    """Write a gradient in the order of a layout, with zeros for what has none."""
    return np.concatenate(
        [gradient.get((leaf.layer, leaf.name), np.zeros(len(leaf.positions), np.float32)) for leaf in layout]
    )


def _cut(flat: Array, gradient: dict[tuple[int, str], Array], layout: tuple[Leaf, ...]) -> dict[tuple[int, str], Array]:
    """Cut it up again."""
    ends = np.cumsum([len(leaf.positions) for leaf in layout])
    found = {
        (leaf.layer, leaf.name): flat[end - len(leaf.positions) : end]
        for leaf, end in zip(layout, ends.tolist(), strict=True)
    }
    return {key: found[key] for key in gradient}
