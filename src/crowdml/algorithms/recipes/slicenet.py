"""slicenet: groups of devices train one net whose pieces they hold, and groups share weights (SliceNet).

L. Chen, T. Jung, H. Du, J. Qian, J. Hou, X.-Y. Li: Crowdlearning: crowded deep learning with data privacy.

There is no check-in to sanitise: within a group partial sums cross from device to device, and weights go to the server
in clear. So there is no formal guarantee, and `crowdml audit` measures what is given away. In sound mode there is one:
the first sums of each row have noise, labels are answered at random, and layers before the cut stay as they are.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crowdml.algorithms.contract import Algorithm, one_phase
from crowdml.algorithms.recipe import Parts, Sights, SlicedRecipe
from crowdml.algorithms.schedule import OnArrival
from crowdml.algorithms.server_parts.upload_window import NoUpload, UploadWindow
from crowdml.core import Settings, trees
from crowdml.models import flatten


class SliceNetSettings(Settings):
    """The `[algorithm]` section of a slicenet task."""

    kind: Literal["slicenet"] = "slicenet"
    pieces: int = Field(
        0, ge=0, le=10_000, description="followers of a group, each with a piece of the net; 0: every device alone"
    )
    dummies: int = Field(0, ge=0, le=10_000, description="devices of a group that stand by for those that drop out")
    slicer: Literal["in-order", "metis"] = Field("in-order", description="how the net is cut")
    balance: float = Field(1.05, gt=1.0, le=100, description="largest piece against the ideal, at most")
    batch: int = Field(50, gt=0, description="rows in a step")
    rate: float = Field(0.1, gt=0, description="learning rate of the first pass")
    decay: float = Field(1.0, gt=0, le=1, description="factor on the rate from each pass to the next")
    theta: float = Field(0.5, ge=0, le=1, description="θ: share of its weights that each device uploads after a pass")
    tau: float = Field(
        0.5, ge=0, le=1, description="τ: a group takes over what the window has more values of than this share of ω"
    )
    omega: int | None = Field(
        None, gt=0, description="ω: size of the server's window; not given: the number of groups, and 8 live"
    )
    window: Literal["uploads", "weights"] = Field(
        "uploads", description="what the window holds: the last ω uploads, or the last ω values of each weight"
    )
    micro_batches: int = Field(1, gt=0, description="parts of a batch that follow each other through the pieces")
    normalisation: Literal["exact", "pipelined"] = Field(
        "exact",
        description='batch normalisation over the whole batch, as unsliced, or over each micro-batch ("pipelined")',
    )
    cut_noise: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="noise on what crosses the first cut, as a multiple of cut-clip; it is drawn once for each row, "
        "and the layers before the cut stay at their first values; 0: none",
    )
    cut_clip: float = Field(
        1.0, gt=0, description="with cut-noise, and in sound mode: largest L2 norm of the first sums of a row"
    )
    label_epsilon: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="sound mode: part of privacy.epsilon for labels, which are answered at random, once for each row; "
        "the rest pays for noise on what crosses the first cut",
    )
    upload_noise: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="noise on every number of an upload, as a multiple of upload-clip; chance chooses what is "
        "uploaded; 0: none",
    )
    upload_clip: float = Field(1.0, gt=0, description="with upload-noise: largest L2 norm of what an upload changes")
    numbers: Literal["float32", "bfloat16", "int8"] = Field("float32", description="how sums and slopes are written")
    members: Literal["named", "hidden"] = Field(
        "named",
        description="live: whether members of a group show each other signed cards and pin them, or fresh keys alone: "
        "then a server that puts its own in between reads everything",
    )
    shuffle: Literal["all", "least"] = Field(
        "all", description="live: whether every turn deals all pieces anew, or moves as few as possible"
    )
    cut_every: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="live: batches between two cuts, from which a group goes on after a loss; 0: as many as take ten "
        "seconds",
    )


LIVE_WINDOW = 8
"""Uploads in the window of a live server, which cannot know how many groups there will be."""


def slicenet(parts: Parts) -> Algorithm:
    """Compose what a live server keeps: a window of the groups' uploads. What passes within a group is no check-in."""
    settings, model = parts.settings, parts.model
    size = trees.size(model.zeros())
    server = UploadWindow(
        first=lambda coins: flatten(model.init(coins)),
        size=size,
        omega=settings.omega or LIVE_WINDOW,
        window=settings.window,
    )
    device = NoUpload(size=size)
    sanitiser = parts.sanitiser("upload", like=device.nothing, by_rows=False)
    return one_phase(device, server, sanitiser, OnArrival(batch=1, buffer=1))


def slicenet_sights(settings: SliceNetSettings, promised: bool) -> Sights:
    """Say what members of a group, and the server, see of a device."""
    noisy = " with noise, drawn once for each row" if settings.cut_noise or promised else ""
    labels = "what your device has answered at random in place of your labels" if promised else "your labels exactly"
    sealed = "sums pass it sealed" if settings.members == "named" else "it reads all sums if it puts itself in between"
    server = "unlimited", f"weights after a pass, which nothing limits; {sealed}"
    group = "unlimited", f"those of your group: sums of your rows{noisy}, and your labels exactly"
    of_rows = {
        **{(who, what): server for who in ("operator", "intruder") for what in ("rows", "row")},
        **{("owners", what): group for what in ("rows", "row")},
    }
    return Sights(
        members={
            "followers with neurons of the first layer": f"sums of your rows{noisy}",
            "holders of the last hidden layer": labels,
            "the next dominator": "weights, as your rows have moved them",
            "a dummy that takes a piece over": "what the follower before it saw, of rows that are replayed",
            "the server": f"weights after a pass; who takes part, when, and with how many rows; {sealed}",
            "members that a server invents": "as much as others do",
        },
        told={
            # Where something is promised, a guess has the same limit for everybody.
            **({} if promised else of_rows),
            ("operator", "count"): ("yes", "yes: every batch says how many rows it has"),
            ("intruder", "count"): ("yes", "yes: of batches after the break-in"),
            ("owners", "part"): ("yes", "a key without your name, in the groups they share with you"),
            ("owners", "when"): ("yes", "yes, in the groups they share with you"),
            ("owners", "count"): ("yes", "yes, in the groups they share with you"),
        },
        trust="You have to trust the program on your device. For the promise you need not trust the operator, the "
        "server, or the members of your group."
        if promised
        else "It is for groups that trust each other: you have to trust the members of your group and whoever runs "
        "the server. No formal guarantee protects you.",
        course="Devices of a group take turns: one lets its rows in, the others hold pieces of the net and pass sums "
        "and slopes on, through the server and sealed. After each pass the server gets a share of the weights.",
    )


SLICENET = SlicedRecipe(settings=SliceNetSettings, build=slicenet, sights=slicenet_sights)
