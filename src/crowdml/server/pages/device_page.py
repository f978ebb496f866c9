"""The page of this device: what a device is, and how its owner looks after it."""

from __future__ import annotations

from fastapi import Response

from crowdml.core import record
from crowdml.server.http.control import described
from crowdml.server.pages.rendering import respond


@record
class DevicePage:
    """What the page shows: nothing of any device, since a server knows none by its browser."""


@described("This device")
async def device_page() -> Response:
    """Explain what a device does and which commands its owner has."""
    return respond("device.html", DevicePage())
