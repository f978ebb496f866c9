"""What can go wrong in the store.

CrowdError
├── StoreConflict   somebody else has written; nothing of this transaction is stored
└── StoreFailed     whether it is stored is not known; the process must end
"""

from __future__ import annotations

from crowdml.core.errors import CrowdError


class StoreConflict(CrowdError):
    """The stored state is not the one that the writer started from. Nothing was stored."""


class StoreFailed(CrowdError):
    """The database or its disk failed. What was being written may be stored or not: end the process and start anew."""
