"""ditto: the common model is fedavg's; test_ditto.py has the plain formula of the devices' own models."""

from tests.parity.references.fedavg import run as run
