"""What server and devices share about a live task: the algorithm over NumPy, its messages, its terms.

Both build it from the same signed task, so that they cannot disagree about the one legal shape of a check-in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crowdml.algorithms.contract import Algorithm, Phase
from crowdml.algorithms.recipe import SlicedRecipe
from crowdml.algorithms.recipes import RECIPES, SLICED
from crowdml.core import NUMPY, Array, BadInput, Batch, Broadcast, CheckIn, record
from crowdml.core.ops import ZeroCoins
from crowdml.data.rows.row_contract import DEFAULT_COLUMN
from crowdml.data.transforms import Fitted, compose, fit_rows
from crowdml.models import flatten
from crowdml.privacy import Plan
from crowdml.privacy.sanitisers.first_sums import FirstCut
from crowdml.task.averaging_terms import read_public
from crowdml.task.masking import MaskedForm, make_masked_form
from crowdml.task.plugins import load_plugins, require_extensions
from crowdml.task.task import Task, first_sums_of
from crowdml.task.user_models import device_model, require_live_model
from crowdml.wire import Layout, Messages, TaskDocument, layouts, message

if TYPE_CHECKING:
    # Most tasks have no pieces, and SciPy takes long to load.
    from crowdml.slicing import SlicedNet
    from crowdml.slicing.live.slice_terms import SliceTerms

Rows = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Turns rows into rows."""


@record
class LiveTask:
    """A task as server and devices run it.

    Attributes:
        task: The settings.
        algorithm: Its functions, over NumPy.
        server: The same functions with parameters as one vector, for the server.
        plan: Bound, noise and promise.
        messages: Layout of both messages.
        server_messages: The same bytes with parameters as one vector.
        state: Layout of the server's state.
        row: Layout of what the server keeps for one device.
        transform: Turns an owner's rows into the model's.
        forms: How check-ins become secure sums, for each phase; empty where each is sent by itself.
        sliced: What groups agree on whose members hold pieces of one net; None where devices check in.
    """

    task: Task
    algorithm: Algorithm
    server: Algorithm
    plan: Plan
    messages: Messages
    server_messages: Messages
    state: Layout
    row: Layout
    transform: Rows
    forms: tuple[MaskedForm, ...] = ()
    sliced: SliceTerms | None = None

    @property
    def masked(self) -> MaskedForm | None:
        """How check-ins of the last phase become secure sums; None where each is sent by itself."""
        return self.forms[-1] if self.forms else None

    def form(self, version: int) -> MaskedForm:
        """Return how check-ins to a version become a secure sum."""
        if not self.forms:
            raise ValueError("check-ins of this task are not aggregated securely")
        return self.forms[self.algorithm.phases.index(self.algorithm.at(version))]


LARGEST_FRAME = 32 << 20
"""Bytes of a message through the relay at most; the deposit of a piece is the largest."""

SIMULATED = ("dataset", "file", "owner", "test", "validation", "split")
"""Keys of `[data]` that only simulations read: devices bring rows of their own."""


def definition_of(task: Task) -> dict[str, Any]:
    """Return what is signed of a task: everything but the simulated crowd and where its rows come from."""
    content: dict[str, Any] = task.model_dump(mode="json", by_alias=True, exclude={"crowd": True})
    if isinstance(task.recipe, SlicedRecipe):
        # A group makes as many passes as the simulated crowd does, which is not signed itself.
        content["stop"]["max-releases"] = task.stop.max_releases or task.passes
    for name in SIMULATED:
        content["data"].pop(name)
    if task.data.target is not None and task.data.target.outside == "clip":
        content["data"]["target"].pop("outside")
    if task.data.label_column == DEFAULT_COLUMN:
        content["data"].pop("label-column")
    if task.data.missing == "refuse":
        content["data"].pop("missing")
    for name in ("columns", "words", "units", "id", "labels", "target", "sensor"):
        # Where there are none the text is as it was before there could be any: a restored task stays the same task.
        if not content["data"][name]:
            content["data"].pop(name)
    return content


def open_task(document: TaskDocument, public: Mapping[str, Array] | None = None, model: Any = None) -> LiveTask:
    """Build a task from what was signed; what cannot be run live is refused.

    Args:
        document: What the signed task says.
        public: Public rows as `public_file.require_public` returns them, on a server whose task needs some.
        model: The model that a device brings, where the task learns one of its operator's own.
    """
    load_plugins()
    require_extensions(document.definition)
    task = Task.model_validate(document.definition, by_alias=True, by_name=False)
    if model is not None:
        task = device_model(task, model)
    require_live(task)
    task.require_conforming()
    if task.name != document.task:
        raise BadInput(f"what was signed for {document.task} defines {task.name}")
    if len(document.arrays) != len(task.data.transform):
        raise BadInput(f"{len(task.data.transform)} transforms, but arrays for {len(document.arrays)}")
    fitted = [transform.restore(arrays) for transform, arrays in zip(task.data.transform, document.arrays, strict=True)]
    return assemble(task, fitted, public)


def assemble(task: Task, fitted: list[Fitted], public: Mapping[str, Array] | None = None) -> LiveTask:
    """Build a task whose transforms are ready."""
    plan = task.calibrated
    hyper = task.hyper(plan) | dict(public or {})
    sliced = sliced_terms(task) if isinstance(task.recipe, SlicedRecipe) else None
    algorithm, server = task.build(NUMPY), task.build(NUMPY, hyper, flat=not task.recipe.sums_only)
    broadcast = first_broadcast(algorithm)
    check_in = example_check_in(algorithm, algorithm.last, broadcast, task.features)
    messages = layouts(broadcast, check_in)
    begun = server.last.server.init(ZeroCoins())
    shaped = Messages(
        check_out=Layout(message(0, server.last.server.check_out(begun)), messages.check_out),
        check_in=messages.check_in if sliced else Layout(message(0, _flat_update(check_in)), messages.check_in),
    )
    return LiveTask(
        task=task,
        algorithm=algorithm,
        server=server,
        plan=plan,
        messages=messages,
        server_messages=shaped,
        state=Layout(begun),
        row=Layout({"row": algorithm.last.server.row()}),
        transform=_fitting(task, compose(fitted)),
        forms=masked_forms(task, algorithm),
        sliced=sliced,
    )


def first_broadcast(algorithm: Algorithm) -> Broadcast:
    """Return what a server would tell its first device, for its shape."""
    return algorithm.last.server.check_out(algorithm.last.server.init(ZeroCoins()))


def masked_forms(task: Task, algorithm: Algorithm) -> tuple[MaskedForm, ...]:
    """Work out how the check-ins of each phase become secure sums; nothing where they are not aggregated so."""
    masking, broadcast = task.masking(), first_broadcast(algorithm)
    if masking is None:
        return ()
    forms = []
    for phase in algorithm.phases:
        example = example_check_in(algorithm, phase, broadcast, task.features)
        example = example if task.recipe.sums_only else _flat_update(example)
        forms.append(make_masked_form(task.name, masking, algorithm.schedule, phase, example))
    return tuple(forms)


def _fitting(task: Task, transform: Rows) -> Rows:
    """Refuse transforms whose arrays were learnt from rows of another length."""
    made = transform(np.zeros((1, task.data.features), np.float32))
    if made.shape != (1, task.features):
        raise BadInput(f"rows have {made.shape[1]} numbers after the transforms, not {task.features}", where="arrays")
    return transform


def _flat_update(check_in: CheckIn) -> CheckIn:
    """Make one vector of the update."""
    return replace(check_in, update=flatten(check_in.update))


def fit_public(task: Task, path: Path | None) -> tuple[dict[str, npt.NDArray[Any]], ...]:
    """Fit the transforms of a task on a file of public rows; return what each learnt, for the signed task."""
    chain = task.data.transform
    learning = [transform.kind for transform in chain if transform.learns]
    if not learning:
        return tuple({} for _ in chain)
    if path is None:
        raise BadInput(
            f"{', '.join(learning)} must be fitted, and what it learns travels to everybody",
            where="data.transform",
            hint='give public rows: --public FILE.npz, with an array "rows"',
        )
    rows, _ = read_public(path, task.data.features)
    return tuple(fitted.arrays for fitted in fit_rows(chain, rows))


def require_live(task: Task) -> None:
    """Refuse what exists in simulation only."""
    if task.calibrated.simulated:
        raise BadInput(
            f'mode = "{task.privacy.mode}" exists in simulation only',
            where="privacy.mode",
            hint='use "sound", or "none" to say openly that nothing is promised',
        )
    if not task.recipe.live:
        live = [name for name, recipe in RECIPES.items() if recipe.live] + list(SLICED)
        raise BadInput(
            f"{task.algorithm.kind} exists in simulation only",
            where="algorithm.kind",
            hint="use one of: " + ", ".join(f'"{name}"' for name in live),
        )
    require_live_model(task)
    if task.recipe.sums_only and not task.secure_aggregation.enabled:
        raise BadInput(
            f"{task.algorithm.kind} is made for sums: live, nobody may see one device's message",
            where="secure-aggregation.enabled",
            hint="add to the task file: [secure-aggregation] and enabled = true",
        )
    if getattr(task.algorithm, "devices", 0) is None:
        raise BadInput(
            "how many devices take part? A live server cannot know who will join",
            where="algorithm.devices",
            hint="such as devices = 100: the share of the crowd behind a version is counted by it",
        )


def example_check_in(algorithm: Algorithm, phase: Phase, broadcast: Broadcast, features: int) -> CheckIn:
    """Make one check-in of an empty batch, for its shape."""
    size = algorithm.schedule.batch
    rows = np.zeros((size, features), np.float32)
    batch = Batch(rows=rows, targets=np.zeros(size, phase.sanitiser.use.target.dtype), mask=np.zeros(size, np.float32))
    return phase.contribute(broadcast, phase.begin(), batch, ZeroCoins())[0]


def sliced_net_of(task: Task) -> SlicedNet:
    """Cut the model of a task into the pieces that its settings ask for."""
    from crowdml.slicing import cost_graph, cut, sliced_net

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
    from crowdml.slicing.first_cut import require_separate_rows
    from crowdml.slicing.live.slice_plan import slice_plan
    from crowdml.slicing.live.slice_terms import SliceTerms
    from crowdml.slicing.piece_messages import Plan as PiecePlan

    settings = task.algorithm
    if settings.pieces < 1:
        raise BadInput(
            "between devices a group has at least one follower", where="algorithm.pieces", hint="such as pieces = 3"
        )
    if settings.upload_noise:
        raise BadInput(
            "noise on uploads exists in simulation only",
            where="algorithm.upload-noise",
            hint='leave it out; cut-noise protects rows from everybody, and mode = "sound" labels as well',
        )
    net, cut = sliced_net_of(task), first_cut_of(task)
    if cut is not None:
        require_separate_rows(net.model, net.graph)
    plan = slice_plan(
        PiecePlan(
            net=net,
            like=net.model.zeros(),
            # Noise is drawn for rows, not for batches, so the batch goes as a whole.
            micro_batches=1 if cut else settings.micro_batches,
            normalisation=settings.normalisation,
            released=cut is not None,
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
        cut=cut,
    )


def first_cut_of(task: Task, plan: Plan | None = None) -> FirstCut | None:
    """Return bound and noise of what crosses the first cut; None where sums are sent as they are."""
    settings, promised = task.algorithm, (plan or task.calibrated).last
    if isinstance(promised, FirstCut):
        return promised
    size = first_sums_of(task.model_for(NUMPY))
    return FirstCut.of_noise(size, settings.cut_clip, settings.cut_noise) if settings.cut_noise else None
