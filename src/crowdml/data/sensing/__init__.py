"""Rows from sensors: what a phone makes of its accelerometer, and of a digit drawn with a finger."""
