"""The stages of a sum stand in one table: machines, routes and documentation name no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from crowdml.secure_aggregation.commitments import LAYERS
from crowdml.secure_aggregation.stages import BLAME, DONE, MESSAGES, ORDER, STAGES, STEPS, TABLE, largest_message
from tests.support.rehearsal import Rehearsal

ROOT = Path(__file__).parents[2]


def test_the_machines_go_through_the_stages_in_their_order(make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    slots = list(range(6))
    crowd: Rehearsal = begin(make_terms(6, 5, 1), slots)
    vectors, device, seen = draw_vectors(crowd.terms, slots, 1), crowd.devices[0], []
    for step in (crowd.greet, crowd.settle, crowd.exchange, lambda: crowd.upload(vectors), crowd.agree):
        seen.append((crowd.server.stage, device.stage))
        step()
    seen.append((crowd.server.stage, device.stage))
    crowd.finish()
    order = ("hello", ORDER[0], "shares", "masked", "consent", "reveal")
    assert seen == [(name, name) for name in order] and crowd.server.stage == DONE
    assert tuple(name for name in order if name not in ORDER) == tuple(name for name in STAGES if name not in ORDER)


def test_a_stage_is_named_once_and_blame_is_none() -> None:
    assert len(set(MESSAGES)) == len(MESSAGES) and set(MESSAGES) - set(STAGES) == {BLAME}
    assert len(ORDER) == LAYERS and STEPS == ("hello", "order", "shares", "masked", "consent", "reveal")


def test_no_message_is_longer_than_the_table_says(make_terms: Any, begin: Any, draw_vectors: Any) -> None:
    slots = list(range(6))
    crowd: Rehearsal = begin(make_terms(6, 5, 1), slots)
    crowd.run(draw_vectors(crowd.terms, slots, 1))
    assert len(crowd.bodies[0]) == largest_message(crowd.terms, "masked")
    assert {name: largest_message(crowd.terms, name) > 0 for name in MESSAGES} == dict.fromkeys(MESSAGES, True)


def test_the_reference_of_the_routes_names_every_message() -> None:
    text = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    listed = re.search(r"\| `stage` \| path \| (.*?) \|", text)
    assert listed is not None and re.findall(r"`([a-z0-9-]+)`", listed[1]) == list(MESSAGES)
    assert all(f"{stage.step}: {stage.message}" in text for stage in TABLE)
