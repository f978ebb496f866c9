"""The network between devices and server: late, out of order, twice, or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random

from tests.system.history import History
from tests.system.server_process import Headers, Server
from tests.system.timeline import Timeline

TIMEOUT_S = 60.0
"""After which a device gives an exchange up."""

Came = Callable[[int, Headers, bytes], None]


@dataclasses.dataclass
class Weather:
    """What goes wrong, as parts of all requests.

    Attributes:
        lost: Never arrive.
        unanswered: Arrive, and the answer is lost.
        twice: Arrive a second time, later, when perhaps others have come.
        slow: Take seconds, on either way.
        outage_until: No request gets through before this.
    """

    lost: float = 0.0
    unanswered: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    outage_until: float = 0.0


class Network:
    """All requests of a course.

    Args:
        timeline: Everything that happens.
        server: Who answers.
        chance: Draws what goes wrong.
        history: Is told of every exchange.
    """

    def __init__(self, timeline: Timeline, server: Server, chance: Random, history: History) -> None:
        self._timeline, self._server, self._chance, self._history = timeline, server, chance, history
        self.weather = Weather()
        self.requests = 0

    def ask(
        self, who: str, method: str, path: str, headers: Headers, body: bytes, came: Came, lost: Callable[[str], None]
    ) -> None:
        """Send a request; exactly one of `came` and `lost` is called, in time."""
        self.requests += 1
        over = [False]
        weather, chance, timeline = self.weather, self._chance, self._timeline

        def settle(act: Callable[[], None]) -> None:
            if not over[0]:
                over[0] = True
                timeout.called_off = True
                act()

        def arrive(counts: bool) -> None:
            if timeline.now < weather.outage_until:
                return
            seen = self._history.asked(who, method, path, body)

            def answered(status: int, answer_headers: Headers, content: bytes) -> None:
                self._history.answered(seen, status, answer_headers, content)
                if counts and chance.random() >= weather.unanswered and timeline.now >= weather.outage_until:
                    timeline.after(self._delay_s(), lambda: settle(lambda: came(status, answer_headers, content)))

            def cut() -> None:
                if counts:
                    timeline.after(self._delay_s(), lambda: settle(lambda: lost("cut")))

            self._server.request(method, path, headers, body, answered, cut)

        timeout = timeline.after(TIMEOUT_S, lambda: settle(lambda: lost("no answer in time")))
        if chance.random() < weather.lost:
            if chance.random() < 0.5:
                timeline.after(self._delay_s(), lambda: settle(lambda: lost("refused")))
            return
        timeline.after(self._delay_s(), lambda: arrive(True))
        if chance.random() < weather.twice:
            timeline.after(self._delay_s() + chance.expovariate(1 / 20.0), lambda: arrive(False))

    def _delay_s(self) -> float:
        chance = self._chance
        return chance.expovariate(1 / 8.0) if chance.random() < self.weather.slow else 0.005 + chance.expovariate(20.0)
