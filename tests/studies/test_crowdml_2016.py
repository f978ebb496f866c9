"""Studies of the Crowd-ML library 2016, on real data where it is there."""

from dataclasses import replace

import pytest

from crowdml.data import locate
from crowdml.studies import STUDIES, reproduce
from crowdml.studies.crowdml_2016.noise import label

needs_mnist = pytest.mark.skipif(locate("mnist") is None, reason="MNIST is not on this machine: crowdml data get mnist")


@needs_mnist
def test_eighty_devices_learn_more_together_than_alone() -> None:
    report = reproduce("crowdml-2016/devices", STUDIES["crowdml-2016/devices"], trials=2)
    rows = {row.setting: row for row in report.rows}
    assert rows["80 devices together, after 100 versions"].ours >= 0.86
    assert rows["together minus alone"].ours > 0.03


@needs_mnist
def test_a_net_learns_with_little_noise_and_not_with_much_on_every_number() -> None:
    study = STUDIES["crowdml-2016/fig2"]
    wanted = {label("Gaussian", "whole message", 1e-3, 10.0), label("Gaussian", "each number", 10.0, 10.0)}
    curves = tuple(
        replace(curve, changes=(*curve.changes, "stop.max-versions=200"))
        for curve in study.curves
        if curve.label in wanted
    )
    report = reproduce("crowdml-2016/fig2", replace(study, curves=curves, compare=lambda results: ()), trials=1)
    errors = [result.test_error for _, result in sorted(report.results.items())]
    assert len(errors) == 2
    assert max(errors) > 0.7 and min(errors) < 0.15
