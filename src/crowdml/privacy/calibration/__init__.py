"""Calibration: from the terms of a task file to what is promised and what protects."""
