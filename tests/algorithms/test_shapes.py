"""Arrays have the shapes that annotations say: in messages, in what the contract asks for, in models and losses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = "tests/algorithms"
SUITES = {
    "wrong parts": (f"{HERE}/checked_shapes.py",),
    "recipes": (f"{HERE}/test_contract.py", "-k", "keeps_the_contract or step_and_finish or all_phases"),
    "batches": (f"{HERE}/server_parts",),
    "models": ("tests/models/test_losses.py", "tests/models/test_model.py"),
}


@pytest.mark.parametrize("suite", SUITES)
def test_shapes_are_as_annotated(suite: str) -> None:
    """In a process of its own: the annotations are read where modules are imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SUITES[suite]]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"CROWDML_CHECK_SHAPES": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_nothing_waits_for_the_reader_of_annotations() -> None:
    """Importing it takes longer than importing the rest of `core`."""
    code = "import sys, crowdml.device, crowdml.task, crowdml.algorithms; print('jaxtyping' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
