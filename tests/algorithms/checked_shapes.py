"""Parts that get a shape wrong. Collected by `test_shapes.py` alone, in a process that checks shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from crowdml.algorithms import DevicePart, ServerPart
from crowdml.algorithms.device_parts.gradient import Gradient
from crowdml.core import NUMPY, Batch, Broadcast, CheckIn, Coins, Release, Tally, Tree, ZeroCoins, record, trees
from crowdml.models import Model
from crowdml.models.losses import LOSSES
from crowdml.task import parse
from tests.support.targets import some_labels

TASK = """
crowdml = 1
name = "shapes"
[data]
features = 3
labels = ["no", "yes", "perhaps"]
[model]
kind = "softmax"
[algorithm]
kind = "crowd-sgd"
[privacy]
mode = "none"
"""
ONE = np.int32(1)
BATCH = Batch(rows=np.zeros((4, 3), np.float32), targets=np.zeros(4, np.int32), mask=np.ones(4, np.float32))


@record
class Wrong(DevicePart):
    """Does what another part does, and then something is changed."""

    inner: Any
    change: dict[str, Any]
    remembers: Any = ()

    def step(self, broadcast: Broadcast, work: Tree, batch: Batch, coins: Coins) -> tuple[Release, Tree]:
        """Change the release, or what is remembered."""
        release, _ = self.inner.step(broadcast, work, batch, coins)
        return replace(release, **self.change), self.remembers


def stepped(**wrong: Any) -> tuple[Release, Tree]:
    phase = parse(TASK).build(NUMPY).last
    broadcast = phase.server.check_out(phase.server.init(ZeroCoins()))
    return Wrong(inner=phase.device, **wrong).step(broadcast, (), BATCH, ZeroCoins())


def test_a_right_part_is_left_alone() -> None:
    release, work = stepped(change={"rows": ONE})
    assert release.rows == 1 and work == ()
    assert isinstance(parse(TASK).build(NUMPY).last.device, Gradient)


def test_a_device_part_whose_release_counts_rows_one_by_one_is_found() -> None:
    with pytest.raises(TypeCheckError, match="rows"):
        stepped(change={"rows": np.ones(4, np.int32)})


def test_a_device_part_whose_state_changes_its_shape_is_found() -> None:
    with pytest.raises(TypeCheckError, match="return value"):
        stepped(change={}, remembers=np.zeros(2, np.float32))


class Row(ServerPart):
    """Keeps a row of another shape than the one it was given."""

    def init(self, coins: Coins) -> Tree:
        """Begin."""
        return ()

    def absorb(self, server: Tree, row: Tree, check_in: CheckIn, staleness: Any) -> tuple[Tree, Tree]:
        """Double the row."""
        return server, np.concatenate([row, row])

    def commit(self, server: Tree) -> tuple[Tree, Tree]:
        """Do nothing."""
        return server, {}


def test_a_server_part_whose_row_grows_is_found() -> None:
    with pytest.raises(TypeCheckError, match="return value"):
        Row().absorb((), np.zeros(2), CheckIn(update=(), weight=ONE), np.int32(0))


def test_a_tally_whose_spread_is_a_table_is_found() -> None:
    with pytest.raises(TypeCheckError, match="spread"):
        Tally(rows=ONE, counted=ONE, errors=ONE, spread=np.zeros((2, 2), np.int32))


def test_a_sanitiser_that_cuts_a_message_short_is_found() -> None:
    sanitiser: Any = parse(TASK).build(NUMPY).last.sanitiser

    class Short(type(sanitiser)):  # type: ignore[misc]
        def bound_message(self, vector: Tree, coins: Coins) -> Tree:
            return trees.map(lambda leaf: leaf[:1], vector)

    with pytest.raises(TypeCheckError, match="return value"):
        Short.bound_message(sanitiser, ({"w": np.zeros((3, 3))},), ZeroCoins())


def softmax(**changes: Any) -> Model:
    model = parse(TASK).model_for(NUMPY)
    return replace(model, loss=replace(model.loss, **changes))


@pytest.mark.parametrize(
    ("changes", "call"),
    [
        (
            {"values": lambda outputs, targets: outputs},
            lambda model: model.losses(model.zeros(), BATCH.rows, BATCH.targets),
        ),
        ({"predict": lambda outputs: outputs}, lambda model: model.predict(model.zeros(), BATCH.rows)),
        ({"slope": lambda outputs, targets: outputs[0]}, lambda model: model.gradients(model.zeros(), BATCH)),
    ],
    ids=["values", "predict", "slope"],
)
def test_a_loss_of_the_wrong_shape_is_found(changes: dict[str, Any], call: Any) -> None:
    call(softmax())
    with pytest.raises(TypeCheckError):
        call(softmax(**changes))


def test_outputs_for_other_rows_than_targets_are_found() -> None:
    loss = LOSSES["softmax"](some_labels(3), NUMPY)
    with pytest.raises(TypeCheckError, match="labels"):
        loss.slope(np.zeros((3, 5), np.float32), np.zeros(4, np.int32))
