"""A task of every recipe that can promise something, small enough to be attacked in a second or two."""

from __future__ import annotations

from crowdml.task import Task, parse

SUMS = '[secure-aggregation]\nenabled = true\nlaw = "{law}"'
SOUND = {
    "crowd-sgd": "kind = 'crowd-sgd'",
    "local-sgd": "kind = 'local-sgd', local-steps = 4, local-batch = 2",
    "fedavg": "kind = 'fedavg', epochs = 2, local-batch = 2",
    "fedsgd": "kind = 'fedsgd'",
    "fedprox": "kind = 'fedprox', local-batch = 2",
    "fedavgm": "kind = 'fedavgm', local-batch = 2",
    "fedadam": "kind = 'fedadam', local-batch = 2",
    "fedyogi": "kind = 'fedyogi', local-batch = 2",
    "fedbuff": "kind = 'fedbuff', local-batch = 2",
    "scaffold": "kind = 'scaffold', local-batch = 2, devices = 20",
    "ditto": "kind = 'ditto', local-batch = 2",
    "dp-fedavg": "kind = 'dp-fedavg', local-batch = 2",
}
"""Recipes whose check-ins are seen one by one."""
IN_SUMS = {
    "fedsgd": "kind = 'fedsgd', per-round = 20",
    "fedavg": "kind = 'fedavg', per-round = 20, local-batch = 2",
    "admm-sums": "kind = 'admm-sums', devices = 20, barrier = 20",
    "consensus-newton": "kind = 'consensus-newton', per-round = 20",
    "ridge": "kind = 'ridge', per-round = 20",
}
"""Recipes attacked under secure aggregation."""
IN_STEPS = {
    "local-sgd": "kind = 'local-sgd', local-steps = 4, local-batch = 2",
    "fedavg": "kind = 'fedavg', local-batch = 2, rate = { kind = 'momentum', c = 0.5 }, rate-memory = 'keep'",
    "fedadam": "kind = 'fedadam', local-batch = 2",
    "fedbuff": "kind = 'fedbuff', local-batch = 2, rate = { kind = 'adam', c = 0.1 }",
    "ditto": "kind = 'ditto', local-batch = 6",
}
"""Recipes whose noise goes into every local step; rates remember something in two of them."""


def attacked_task(
    recipe: str,
    unit: str = "sample",
    mechanism: str = "gaussian",
    *,
    epsilon: float = 4.0,
    uses: int = 3,
    law: str = "",
    steps: bool = False,
    changes: tuple[str, ...] = (),
) -> Task:
    """Make a task.

    With a law check-ins are aggregated securely, and shares of noise have that law; with steps noise goes into steps.
    """
    labels = '["a", "b"]' if recipe == "ridge" else '["a", "b", "c"]'
    model = "logistic" if recipe == "ridge" else "softmax"
    clip = "" if recipe in ("ridge", "dp-fedavg") else "clip = 0.5"
    most_uses = uses + 9 if recipe == "consensus-newton" else uses
    source = f"""
crowdml = 1
name = "attacked"
[data]
features = 6
labels = {labels}
transform = [{{ kind = "norm", order = 2, at-most = 1.0 }}]
[model]
kind = "{model}"
[algorithm]
kind = "crowd-sgd"
[privacy]
unit = "{unit}"
mechanism = "{mechanism}"
epsilon = {epsilon}
delta = 1e-6
{clip}
max-uses = {most_uses}
{'noise-at = "steps"' if steps else ""}
[stop]
max-releases = {uses}
{SUMS.format(law=law) if law else ""}
"""
    form = (IN_STEPS if steps else IN_SUMS if law else SOUND)[recipe]
    return parse(source, changes=[f"algorithm={{ {form} }}", *changes])
