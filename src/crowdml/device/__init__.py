"""The device driver: rows, entropy, the ledger's storage, and the conversation with a server."""

from crowdml.device.coins import DeviceCoins as DeviceCoins
from crowdml.device.device import Device as Device
from crowdml.device.ledger_store import Ledger as Ledger
from crowdml.device.rows import RowBuffer as RowBuffer
