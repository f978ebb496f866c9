"""The device driver: entropy, and the ledger's storage."""

from crowdml.device.coins import DeviceCoins as DeviceCoins
from crowdml.device.ledger_store import Ledger as Ledger
