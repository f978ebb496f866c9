"""The application: raw routes, control plane, pages and measurements put together."""

from __future__ import annotations

from collections.abc import Callable, Collection

from crowdml.core import record
from crowdml.server.asgi import Asgi
from crowdml.server.bodies import BodyLimit
from crowdml.server.coordinator import Coordinator, Options
from crowdml.server.exchange import Exchange
from crowdml.server.failure import end_process
from crowdml.server.front import Door, Front
from crowdml.server.later import Later
from crowdml.server.limits import Limiter, Pace
from crowdml.server.store import Store
from crowdml.server.sums import SumRoutes


@record
class Access:
    """Who may ask, and how often.

    Attributes:
        hosts: Names this server answers to.
        device_pace: Requests of one device.
        stranger_pace: Requests of one address with a token that is not valid, enrolments included.
        reader_pace: Requests of one address that has no valid token, whatever it reads.
        address: What invites give as the server's address; None: as the request was made.
        scheme: http or https, as browsers know this server; None: as the request was made.
        secure_s: Seconds for which browsers shall ask by https alone; 0: they are not told.
    """

    hosts: Collection[str] = ("127.0.0.1", "localhost", "[::1]")
    device_pace: Pace = Pace(per_second=50.0, burst=200)
    stranger_pace: Pace = Pace(per_second=5.0, burst=100)
    reader_pace: Pace = Pace(per_second=20.0, burst=200)
    address: str | None = None
    scheme: str | None = None
    secure_s: int = 0


def create_app(
    store: Store,
    options: Options = Options(),  # noqa: B008  a frozen record
    access: Access = Access(),  # noqa: B008  a frozen record
    failed: Callable[[BaseException], None] = end_process,
) -> Asgi:
    """Make the application of one server.

    Args:
        store: An open store with an identity. The application closes it.
        options: How tasks are run.
        access: Who may ask.
        failed: What happens when the store fails; a test gives something milder.
    """
    coordinator = Coordinator(store, failed, options)
    strangers, devices = Limiter(access.stranger_pace), Limiter(access.device_pace)

    def load() -> Asgi:
        from crowdml.server.framework import make_framework

        store.warm()
        return make_framework(coordinator, devices, strangers, access.address, failed)

    later = Later(load)
    exchange = Exchange(coordinator, devices, strangers)
    sums = SumRoutes(coordinator, exchange, BodyLimit(later, coordinator.is_operator))
    door = Door(hosts=access.hosts, readers=Limiter(access.reader_pace), scheme=access.scheme, secure_s=access.secure_s)
    return Front(coordinator, exchange, sums, door, later.begin)
