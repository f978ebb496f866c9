"""The life of a task on a real server, as a program of its own: python scenario.py FOLDER.

A task is made, devices join, check in, one is revoked, the model is exported. Whatever the server has acknowledged
becomes a line in the file `sent`, appended in one write: a word for what it was, and what belongs to it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.application import Application

DEVICES, CHECK_INS = 3, 8


def main(folder: Path) -> None:
    """Go through it."""
    out = os.open(folder / "sent", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(*words: object) -> None:
        os.write(out, ("/".join(map(str, words)) + "\n").encode())

    app = Application(folder)
    app.create()
    tell("task", "walk")
    devices = []
    for _ in range(DEVICES):
        devices.append(app.device())
        tell("device", devices[-1].id)
    for number in range(CHECK_INS):
        for device in devices:
            answer = device.check_in(key=f"check-in-{number}")
            assert answer.status_code == 200, answer.text
            tell("receipt", device.slot, f"check-in-{number}", answer.json()["version"])
    assert app.as_operator("DELETE", f"/v1/tasks/walk/devices/{devices[0].id}").status_code in (200, 204)
    tell("revoked", devices[0].id)
    assert app.as_operator("GET", "/v1/tasks/walk/model").status_code == 200
    tell("version", app.show()["version"])
    assert app.move("stopped").status_code == 200
    tell("state", "stopped")
    app.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
