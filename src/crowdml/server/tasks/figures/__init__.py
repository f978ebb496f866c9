"""What a task shows of how it goes on: its curve, who took part when, errors on public rows."""
