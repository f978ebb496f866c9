"""What owners of pieces agree on, and what they tell each other."""

from __future__ import annotations

from typing import Literal

from crowdml.core import Array, record
from crowdml.core.ops import Tree
from crowdml.slicing.sliced_net import Normalisation, SlicedNet, micro_batch_sizes

Kind = Literal["forward", "backward", "tied"]


@record
class Told:
    """What one owner tells another.

    Attributes:
        kind: Partial sums, slopes of sums, or gradients of filters that both have.
        stage: Number of the stage; 0 for gradients.
        batch: How many batches both have finished.
        micro: Number of the micro-batch; 0 for gradients.
        rows: Rows of the whole batch.
        sender: Number of the sender's piece.
        receiver: Number of the receiver's piece.
        numbers: A line for each sum and a column for each row of the micro-batch; gradients are one column.
    """

    kind: Kind
    stage: int
    batch: int
    micro: int
    rows: int
    sender: int
    receiver: int
    numbers: Array


@record
class Plan:
    """What all owners of a net agree on.

    Attributes:
        net: The net in pieces.
        like: Parameters of the right shapes.
        micro_batches: Parts of a batch.
        normalisation: Whether batch normalisation waits for a whole batch.
        released: Whether dominators send sums with noise that was drawn before: then the first layers stay as they are.
    """

    net: SlicedNet
    like: Tree
    micro_batches: int = 1
    normalisation: Normalisation = "exact"
    released: bool = False

    def sizes(self, rows: int) -> list[int]:
        """Rows of each micro-batch."""
        return micro_batch_sizes(self.net.model, rows, self.micro_batches, self.normalisation)
