"""The store of the live server: tasks, devices, invites and receipts, in SQLite or PostgreSQL."""

from crowdml.server.store.errors import StoreConflict as StoreConflict
from crowdml.server.store.errors import StoreFailed as StoreFailed
from crowdml.server.store.records import Applied as Applied
from crowdml.server.store.records import Identity as Identity
from crowdml.server.store.records import Joined as Joined
from crowdml.server.store.records import NewDevice as NewDevice
from crowdml.server.store.records import NewTask as NewTask
from crowdml.server.store.records import Point as Point
from crowdml.server.store.records import Receipt as Receipt
from crowdml.server.store.records import StoredDevice as StoredDevice
from crowdml.server.store.records import StoredTask as StoredTask
from crowdml.server.store.store import Store as Store
from crowdml.server.store.store import open_store as open_store
