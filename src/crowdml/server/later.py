"""An application that is loaded while the server serves already.

Devices need two routes, and those are there at once. The framework of the control plane and the pages takes a second to
load; whoever asks for them in that second waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crowdml.server.asgi import Asgi, Receive, Scope, Send


class Later:
    """Loads an application once, in a thread.

    Args:
        load: Returns the application; it may take its time.
    """

    def __init__(self, load: Callable[[], Asgi]) -> None:
        """Load nothing yet."""
        self._load = load
        self._loading: asyncio.Task[Asgi] | None = None

    def begin(self) -> asyncio.Task[Asgi]:
        """Begin to load, unless that was done before; an event loop must be running."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(asyncio.to_thread(self._load))
        return self._loading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, once the application is there; a request that gives up does not stop the loading."""
        loading = self._loading or self.begin()
        inner = loading.result() if loading.done() else await asyncio.shield(loading)
        await inner(scope, receive, send)
