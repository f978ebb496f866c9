"""httpx without its own command line, which would load rich and pygments: a quarter of a second per device.

`None` in `sys.modules` makes an import fail; httpx then does without.
"""

from __future__ import annotations

import sys

_COMMAND_LINE = "httpx._main"
_absent = _COMMAND_LINE not in sys.modules
if _absent:
    sys.modules[_COMMAND_LINE] = None  # type: ignore[assignment]

import httpx as httpx  # noqa: E402

if _absent:
    del sys.modules[_COMMAND_LINE]
