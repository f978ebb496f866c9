"""Federated recipes: devices go through their rows, round by round or on arrival, and a server averages."""
