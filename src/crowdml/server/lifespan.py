"""The life of a server: tasks are taken up where the store has them, and let go of when it ends."""

from __future__ import annotations

from collections.abc import Callable

from crowdml.server.asgi import Receive, Send
from crowdml.server.coordinator import Coordinator


async def live(coordinator: Coordinator, begun: Callable[[], object], receive: Receive, send: Send) -> None:
    """Speak ASGI's protocol of start and end.

    Args:
        coordinator: Holds the tasks and the store.
        begun: Called when devices are served.
        receive: Where start and end are told.
        send: Where they are acknowledged.
    """
    await receive()
    try:
        for stored in coordinator.store.tasks():
            coordinator.start(stored)
    except BaseException as error:
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        raise
    await send({"type": "lifespan.startup.complete"})
    begun()
    await receive()
    await coordinator.close()
    await send({"type": "lifespan.shutdown.complete"})
