"""Aggregation: how several check-ins become one update."""
