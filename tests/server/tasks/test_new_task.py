"""Public rows of a task: written once, there again after a restart, refused where they cannot teach."""

from pathlib import Path

import numpy as np
import pytest

from crowdml.algorithms.aggregation.public_rows import ROWS, TARGETS
from crowdml.core import BadInput
from crowdml.server.store import NewTask, open_store
from crowdml.server.tasks.new_task import read_public_set, write_public_set
from crowdml.task import parse
from crowdml.task.live_task import definition_of, open_task
from crowdml.wire import TaskDocument

TASK = """
crowdml = 1
name = "walk"
[data]
features = 3
labels = ["standing", "walking"]
public = 200
[model]
kind = "softmax"
[algorithm]
kind = "fedavg"
averaging = "learned"
[privacy]
mode = "none"
"""
ROWS_OF = np.arange(600, dtype=np.float32).reshape(200, 3)
LABELS_OF = (np.arange(200) % 2).astype(np.float32)


def test_rows_are_there_again_after_a_restart(tmp_path: Path) -> None:
    task = parse(TASK)
    document = TaskDocument(task="walk", incarnation=1, definition=definition_of(task), arrays=())
    kept = write_public_set(task, {"rows": ROWS_OF, "labels": LABELS_OF})
    new = NewTask(
        name="walk", state="open", file=TASK, signed_text=b"s", signature=b"s", key=b"k", server_state=b"", public=kept
    )
    with open_store(f"sqlite:///{tmp_path}/crowd.sqlite") as store:
        store.create_task(new)
    with open_store(f"sqlite:///{tmp_path}/crowd.sqlite") as store:
        stored = store.tasks()[0]
    found = read_public_set(document, stored.public)
    np.testing.assert_array_equal(found[ROWS], ROWS_OF)
    np.testing.assert_array_equal(found[TARGETS], LABELS_OF)
    assert open_task(document, found).server.last.server.takes == "individuals"


@pytest.mark.parametrize(
    ("rows", "labels", "what"),
    [
        (ROWS_OF[:100], LABELS_OF[:100], "too few"),
        (ROWS_OF, 0 * LABELS_OF, "walking"),
        (ROWS_OF[:, :2], LABELS_OF, "shape"),
    ],
)
def test_rows_that_cannot_teach_are_refused(rows: object, labels: object, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        write_public_set(parse(TASK), {"rows": rows, "labels": labels})  # type: ignore[dict-item]
    with pytest.raises(BadInput, match="public rows"):
        write_public_set(parse(TASK), None)
