"""The ledger: what a device has promised and spent, across tasks."""
