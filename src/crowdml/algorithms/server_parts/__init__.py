"""Server parts: what the server does with check-ins. A recipe composes them."""
