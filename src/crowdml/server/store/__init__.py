"""The store of the live server: tasks, devices, invites and receipts, in SQLite or PostgreSQL."""

from crowdml.server.store.event_log import Actor as Actor
from crowdml.server.store.event_log import Event as Event
from crowdml.server.store.session_tables import StoredSession as StoredSession
from crowdml.server.store.store import Store as Store
from crowdml.server.store.store import open_store as open_store
from crowdml.server.store.store_records import Applied as Applied
from crowdml.server.store.store_records import Identity as Identity
from crowdml.server.store.store_records import Joined as Joined
from crowdml.server.store.store_records import NewDay as NewDay
from crowdml.server.store.store_records import NewDevice as NewDevice
from crowdml.server.store.store_records import NewTask as NewTask
from crowdml.server.store.store_records import Point as Point
from crowdml.server.store.store_records import Receipt as Receipt
from crowdml.server.store.store_records import StoreConflict as StoreConflict
from crowdml.server.store.store_records import StoredDay as StoredDay
from crowdml.server.store.store_records import StoredDevice as StoredDevice
from crowdml.server.store.store_records import StoredError as StoredError
from crowdml.server.store.store_records import StoredTask as StoredTask
from crowdml.server.store.store_records import StoreFailed as StoreFailed
