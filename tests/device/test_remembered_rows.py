"""A ledger counts samples that a device remembers as used by every later release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crowdml

STEPS = "algorithm={ kind = 'local-sgd', local-steps = 2, local-batch = 2, rate = { kind = 'RATE', c = 1.0 } }"
TERMS = (
    "privacy={ unit = 'sample', mechanism = 'gaussian', clip = 1.0, epsilon = 6.0, delta = 1e-5, max-uses = 4 }",
    "stop={ max-releases = 4 }",
)


@pytest.mark.parametrize(("rate", "counts"), [("momentum", [1, 1, 1, 1, 2, 2, 2, 2]), ("constant", [1] * 8)])
def test_what_is_remembered_is_used_again(make_server: Any, join: Any, rows: Any, rate: str, counts: list[int]) -> None:
    """Eight rows, four in a release: after two releases each row was in one."""
    server = make_server(STEPS.replace("RATE", rate), *TERMS)
    with crowdml.Device(join(server), connect=server.connect) as device:
        device.run(rows, releases=2)
        spending = device.sender.spending
        assert sorted(spending.uses.counts().tolist()) == counts
        one = spending.terms.event
        assert spending.spent() == one.times(max(counts))
        device.run(rows)
        assert spending.releases == 4, "the terms cover no more releases"
        assert spending.uses.most() == (4 if rate == "momentum" else 2)
        assert np.all(spending.uses.counts() <= spending.terms.uses)
