"""The server driver: what runs on the operator's machine."""
