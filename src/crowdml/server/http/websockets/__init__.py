"""WebSockets: how connections are bounded, and the relay between members of a group."""
