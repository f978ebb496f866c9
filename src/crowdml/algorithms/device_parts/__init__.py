"""Device parts: what a device does between check-out and check-in. A recipe composes them."""
