"""fedyogi: as fedadam but for its second moment, which fedadam.py has beside the other."""

from tests.parity.references.fedadam import run as run
