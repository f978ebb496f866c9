"""What a release is made of: package, list of everything it was locked with, checksums, and their signature."""
