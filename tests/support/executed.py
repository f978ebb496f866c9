"""Which files of the package execute code in a stretch of time, in all threads of this process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import crowdml

PACKAGE = Path(crowdml.__file__).parent


class Executed:
    """Notes the files whose functions are called while it listens; the body of a module does not count."""

    def __init__(self) -> None:
        self.listening = False
        self.calls: dict[str, set[str]] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self.listening and event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            # A module that is imported meanwhile runs its body and those of its classes: that is no step of a walk.
            if code.co_flags & 0x02:
                name = Path(code.co_filename).relative_to(PACKAGE).as_posix()
                self.calls.setdefault(name, set()).add(code.co_qualname)


@contextmanager
def watched() -> Iterator[Executed]:
    """Watch this thread and all that are started in the block."""
    executed, before = Executed(), sys.getprofile()
    threading.setprofile(executed)
    sys.setprofile(executed)
    try:
        yield executed
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
