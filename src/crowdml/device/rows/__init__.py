"""A device's rows: where they come from, what they must look like, which sample each is, and which enter a batch."""
