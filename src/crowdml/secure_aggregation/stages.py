"""The stages of a sum: one table, which both machines, the server's routes and the documentation read.

At every stage each member hands a message over; once the stage is closed, each gets an answer, and the next begins.
Members who were silent are lost. Blame is no stage: it is handed over in the place of a masked vector.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdml.core import CrowdError, record
from crowdml.secure_aggregation.commitments import LAYERS, LINK_BYTES, TAG_BYTES
from crowdml.secure_aggregation.shamir import SHARE_BYTES
from crowdml.secure_aggregation.sum_messages import COMMITMENT_BYTES, HELLO_BYTES, PARCEL_BYTES, flag_bytes
from crowdml.secure_aggregation.sum_terms import SumTerms

HELLO = "hello"
ORDER = tuple(f"order-{layer + 1}" for layer in range(LAYERS))
"""Each layer of links is a stage of its own; mostly there is one."""
SHARES, BLAME, MASKED, CONSENT, REVEAL = "shares", "blame", "masked", "consent", "reveal"
DONE = "done"
"""Where a machine is when its sum is over or was given up."""


@record
class Stage:
    """A message that members hand over, and what follows.

    Attributes:
        name: As machines, routes and refusals name it.
        step: The same for all layers of the order, which are one step of the protocol.
        message: What a device hands over.
        answer: What it gets once the stage is closed.
        most_bytes: Length of the longest message under given terms; there are never more neighbours than members.
    """

    name: str
    step: str
    message: str
    answer: str
    most_bytes: Callable[[SumTerms], int]


TABLE = (
    Stage(
        name=HELLO,
        step=HELLO,
        message="a fresh key, the tip of a chain, the broadcast worked on, and the member's card",
        answer="the roster: who takes part, and on which broadcasts",
        most_bytes=lambda terms: HELLO_BYTES,
    ),
    *(
        Stage(
            name=name,
            step="order",
            message="a link of the chain",
            answer="everybody's links; who has none leaves the roster, and the others open once more",
            most_bytes=lambda terms: LINK_BYTES,
        )
        for name in ORDER
    ),
    Stage(
        name=SHARES,
        step=SHARES,
        message="two shares for each neighbour, sealed and marked",
        answer="who has shared, and what neighbours have sealed",
        most_bytes=lambda terms: COMMITMENT_BYTES + (terms.invited - 1) * PARCEL_BYTES,
    ),
    Stage(
        name=BLAME,
        step=BLAME,
        message="whose mail is wrong, in the place of masked",
        answer="",
        most_bytes=lambda terms: flag_bytes(terms.invited - 1),
    ),
    Stage(
        name=MASKED,
        step=MASKED,
        message="the masked vector, and for each neighbour a tag over who has shared",
        answer="whose vectors have arrived, and neighbours' tags",
        most_bytes=lambda terms: terms.body_bytes + (terms.invited - 1) * TAG_BYTES,
    ),
    Stage(
        name=CONSENT,
        step=CONSENT,
        message="for each survivor a tag over who has shared and survived",
        answer="everybody's tags for this member",
        most_bytes=lambda terms: terms.invited * TAG_BYTES,
    ),
    Stage(
        name=REVEAL,
        step=REVEAL,
        message="one share for each neighbour",
        answer="the receipt",
        most_bytes=lambda terms: (terms.invited - 1) * (1 + SHARE_BYTES),
    ),
)
MESSAGES = tuple(stage.name for stage in TABLE)
"""Names of all messages."""
STAGES = tuple(name for name in MESSAGES if name != BLAME)
"""Names of the stages, in their order."""
STEPS = tuple(dict.fromkeys(stage.step for stage in TABLE if stage.name != BLAME))
"""Names of the steps: the stages, with the order's layers as one."""
_BY_NAME = {stage.name: stage for stage in TABLE}


def largest_message(terms: SumTerms, name: str) -> int:
    """Return how many bytes a message of that name has at most."""
    return _BY_NAME[name].most_bytes(terms)


class SumAborted(CrowdError):
    """A sum was given up: too few members are left, or somebody did not keep to the protocol. Nothing was revealed."""


class WrongMail(SumAborted):
    """Neighbours' shares are not what they are marked as: this member does not mask, and says whom it blames.

    Attributes:
        accused: For each neighbour, whether its mail is wrong.
    """

    def __init__(self, accused: tuple[bool, ...]) -> None:
        super().__init__(f"the shares of {sum(accused)} neighbours are not sealed with their keys, or not as marked")
        self.accused = accused


class LateMessage(CrowdError):
    """A message came after its stage was closed; it is not looked at."""
