"""Doubts about a result: what a reader is warned about."""

import json
from collections.abc import Callable

import pytest

from crowdml.cli.simulate import print_result
from crowdml.simulation import simulate
from crowdml.task import Task

Make = Callable[..., Task]


@pytest.mark.parametrize(
    "changes, told",
    [
        (("algorithm.rate={ kind = 'constant', c = 1e6 }",), "ran away in 2 of 2 trials"),
        (("algorithm.rate={ kind = 'constant', c = 1e30 }",), "ran away in 2 of 2 trials"),
        (
            ("algorithm={ kind = 'fedavg', rate = { kind = 'constant', c = 1e20 } }", "model.kind=mlp"),
            "no longer finite",
        ),
        (("algorithm.rate={ kind = 'constant', c = 1e-9 }", "model.kind=mlp"), "too large or too small"),
    ],
)
def test_a_rate_that_makes_everything_diverge_is_warned_about(
    changes: tuple[str, ...], told: str, digits: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulate(digits(*changes), trials=2)
    (warning,) = result.warnings
    assert told in warning and "algorithm.rate" in warning
    text = json.dumps(result.to_json(), allow_nan=False)  # NaN is no JSON
    assert json.loads(text)["warnings"] == [warning]
    print_result(result)
    assert "warning: " in capsys.readouterr().out


def test_a_delta_without_meaning_is_warned_about_where_it_is_not_refused(digits: Make) -> None:
    changes = ("privacy.mode=paper", "privacy.mechanism=gaussian", "privacy.epsilon=2.0")
    quiet, loud = (simulate(digits(*changes, f"privacy.delta={delta}")).warnings for delta in (1e-6, 0.01))
    assert not any("delta" in warning for warning in quiet)
    assert any("privacy.delta = 0.01 is not below 1 / 1400" in warning for warning in loud)
