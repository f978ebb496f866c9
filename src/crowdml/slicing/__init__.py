"""Slicing: one model cut over several devices, each with a part of every example's arithmetic."""
