"""The device driver: rows, entropy, the ledger's storage, and the conversation with a server."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crowdml.device.device import Device as Device
    from crowdml.device.entropy_coins import DeviceCoins as DeviceCoins
    from crowdml.device.ledger_store import Ledger as Ledger
    from crowdml.device.rows.row_sources import RowBuffer as RowBuffer

# Imported when first asked for: whoever wants to read a ledger need not load what speaks to servers.
_HOMES = {"Device": "device", "DeviceCoins": "entropy_coins", "Ledger": "ledger_store", "RowBuffer": "rows.row_sources"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'crowdml.device' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"crowdml.device.{_HOMES[name]}"), name)
