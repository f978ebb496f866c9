"""crowdml demo: a crowd learns handwritten digits, in half a minute, with nothing to prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TASK = Path(__file__).with_name("digits.toml")

SETTINGS = {
    "no noise": [],
    "Gaussian noise": [
        "algorithm.batch=70",
        "algorithm.rate.c=10.0",
        "privacy.mode=paper",
        "privacy.mechanism=gaussian",
        "privacy.clip=0.5",
        "privacy.epsilon=2.0",
        "privacy.delta=1e-6",
    ],
    "slow network": ["crowd.delays={ law = 'uniform', request = 500, check-out = 500, check-in = 500 }"],
}
"""What the demo compares: changes to the task file."""


def demo(
    plot: Annotated[Path, typer.Option(help="Where to save the figure.")] = Path("demo.png"),
    trials: Annotated[int, typer.Option(min=1, help="Repetitions of each crowd.")] = 10,
    json: Annotated[Path | None, typer.Option(help="Write the results here.")] = None,
) -> None:
    """Watch a crowd of twenty simulated devices learn handwritten digits.

    Three crowds are compared: one without noise, one whose devices add Gaussian noise to whatever leaves them, and
    one on a slow network. A figure shows how the test error falls.
    """
    from crowdml.algorithms import load
    from crowdml.cli import output
    from crowdml.simulation import simulate
    from crowdml.simulation.plot import curve_figure

    output.check_paths(json, plot)
    results = {}
    for label, changes in SETTINGS.items():
        task = load(TASK, changes)
        with output.Progress(label) as progress:
            results[label] = simulate(task, trials=trials, watch=progress.update)
    output.print_comparison(results)
    curve_figure(results, plot)
    output.say(f"figure: {plot}")
    output.write_json({label: result.to_json() for label, result in results.items()}, json)
