"""What runs a task: its writer, what check-ins do to it, its crowd, its secure sums."""
