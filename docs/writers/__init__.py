"""What writes the reference pages, one file a page."""
