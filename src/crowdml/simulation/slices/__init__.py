"""Nets in pieces, simulated: what groups learn, and how long they take."""
