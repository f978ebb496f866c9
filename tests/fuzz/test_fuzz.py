"""A little of what `python -m tests.fuzz.run` does at length."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from tests.fuzz.bodies import Bodies
from tests.fuzz.parsers import fuzz, targets
from tests.support.application import Makes


def test_mutated_check_ins_are_refused_or_known_and_change_nothing(tmp_path: Path) -> None:
    with contextlib.closing(Makes(tmp_path)) as make:
        app = make()
        app.create()
        bodies = Bodies(app)
        bodies.send(5_000, random.Random(1))
    assert bodies.met[422] > 1_000 and bodies.met[200] > 100


def test_parsers_read_mutants_or_refuse_them(tmp_path: Path) -> None:
    draw = random.Random(2)
    for name, target in targets(tmp_path).items():
        met = fuzz(target, 2_000, draw)
        assert met["read"] and met["refused"], (name, met)
